"""`trilab …`: everything that is not a training key. Each command imports what it needs when it is called."""

import argparse
import io
import os
import sys
from pathlib import Path
from typing import Any

from trilab import __version__
from trilab.errors import BadInput
from trilab.imports import importing_torch
from trilab.utf8_mode import ensure_utf8


def main() -> None:
    """Run one command.

    Exit code 0, 1 (a law does not hold, a row is not reproduced), 2 (bad input), 130 (Ctrl-C), 141 (nobody reads what
    is written), or 128 and the number of the signal that stopped a training.
    """
    ensure_utf8()
    if sys.argv[1:2] == ["train"]:  # Hydra reads the rest of the command line itself
        from trilab.launch import main as train

        sys.argv = [f"{Path(sys.argv[0]).name} train", *sys.argv[2:]]
        train()
        return
    arguments = _parser().parse_args()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for characters that the terminal cannot show
    try:
        arguments.command(arguments)
        print(end="", flush=True)
    except BadInput as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # `… | head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it ends
        sys.exit(141)  # 128 + SIGPIPE
    except KeyboardInterrupt:
        sys.exit(130)  # 128 + SIGINT, as a shell counts


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trilab", description="Compare ways for a language model to look back.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    commands.add_parser("train", add_help=False, help="train one run or a sweep; as train.py, see trilab train --help")

    check = commands.add_parser("check", help="try every law on strategies: can they see the future?")
    check.add_argument(
        "words",
        nargs="*",
        metavar="NAME [knob=value ...]",
        help="a strategy, a class as my_pkg.MyAgg, or a stack as [window,attention] (default: every strategy)",
    )
    check.add_argument("--n-embd", type=int, default=8, help="channels (default: 8)")
    check.add_argument("--block-size", type=int, default=8, help="most tokens (default: 8)")
    check.add_argument("--json", action="store_true", help="print a JSON list, and nothing else")
    check.add_argument("--inductor", action="store_true", help="compile with inductor, which needs a C++ compiler")
    check.set_defaults(command=_check)

    explain = commands.add_parser("explain", help="what a strategy is: formula, cost, table, loop; or all of them")
    explain.add_argument(
        "words",
        nargs="*",
        metavar="NAME [knob=value ...]",
        help="a strategy, or a class as my_pkg.MyAgg (default: a table of every strategy)",
    )
    explain.add_argument("--svg", type=Path, metavar="FILE", help="also write its table as a picture")
    explain.add_argument("--page", type=Path, metavar="FILE", help="write the page of every strategy, with pictures")
    explain.set_defaults(command=_explain)

    report = commands.add_parser("report", help="an experiment's page, its table, report.json and report.csv")
    report.add_argument("folder", type=Path, help="outputs/<experiment_name>")
    report.add_argument("--baseline", help="the row that the others are compared with (default: the config's, none)")
    report.add_argument(
        "--measure",
        choices=("val_loss", "best_val_loss", "test_loss", "answer_loss"),
        help="what rows are judged by: final, lowest or test loss, or that of answers (default: the config's)",
    )
    report.add_argument(
        "--margin", type=float, metavar="NATS", help="what differs by surely less is equal (default: the config's)"
    )
    report.add_argument(
        "--choose", metavar="KEY", help="such as optim.lr: of each strategy only the value with the lowest val loss"
    )
    report.add_argument("--svg", type=Path, metavar="FILE", help="also write the table as a picture")
    report.set_defaults(command=_report)

    reproduce = commands.add_parser(
        "reproduce", help="train a report's row again: the same bits, within noise, or different and why"
    )
    reproduce.add_argument("report", type=Path, help="outputs/<experiment_name>/report.json")
    reproduce.add_argument("--row", required=True, metavar="NAME", help="the row, by its whole name")
    reproduce.add_argument("--seed", type=int, help="only the run of this seed (default: every run of the row)")
    reproduce.add_argument(
        "--outputs", type=Path, metavar="FOLDER", help="where <experiment_name>-reproduced/ goes (default: beside it)"
    )
    reproduce.add_argument("--logger", action="store_true", help="log to where the runs were logged (default: nowhere)")
    reproduce.add_argument("--trust", action="store_true", help="run code outside trilab that the runs' configs name")
    reproduce.set_defaults(command=_reproduce)

    power = commands.add_parser("power", help="the noise floor: how many seeds and minutes decide a difference")
    power.add_argument("keys", nargs="*", metavar="KEY=VALUE", help="a configuration, as for train: experiment=part03")
    power.add_argument("--seeds", type=int, default=4, help="of the baseline to train: 0, 1, … (default: 4)")
    power.add_argument(
        "--difference", type=float, default=0.01, metavar="NATS", help="that one would like to find (default: 0.01)"
    )
    power.add_argument("--json", action="store_true", help="print a JSON object, and nothing else")
    power.set_defaults(command=_power)

    runs = commands.add_parser("runs", help="what of an experiment is finished, running, failed, stopped and left")
    runs.add_argument("folder", type=Path, help="outputs/<experiment_name>")
    runs.add_argument("--baseline", default="none", help="the row that differences are taken to (default: none)")
    way = runs.add_mutually_exclusive_group()
    way.add_argument("--watch", action="store_true", help="a live screen until all is done; without a terminal, lines")
    way.add_argument("--json", action="store_true", help="print a JSON object, and nothing else")
    runs.add_argument("--every", type=float, default=2.0, metavar="SECONDS", help="between two looks (default: 2)")
    runs.set_defaults(command=_runs)

    board = commands.add_parser("dashboard", help="an experiment's workspace and report on W&B")
    board.add_argument("experiment", help="experiment_name")
    board.add_argument("--project", default="trilab", help="default: trilab")
    board.add_argument("--entity", help="a team (default: your own)")
    board.add_argument("--dry-run", action="store_true", help="print as JSON what would be sent, and send nothing")
    board.set_defaults(command=_dashboard)

    generate = commands.add_parser("generate", help="text from a trained model, or what a text costs it")
    _add_run(generate)
    given = generate.add_mutually_exclusive_group()
    given.add_argument("--prompt", metavar="TEXT", help="how the text begins; --prompt=-x if with a -")
    given.add_argument("--prompt-file", metavar="FILE", help="the same in a file, less one last line end; - is stdin")
    given.add_argument("--loss", metavar="FILE", help="write nothing: nats and bits per character of this text")
    generate.add_argument("--encoding", help="of a file without a byte order mark (default: UTF-8)")
    writing = generate.add_argument_group("writing")
    writing.add_argument("--tokens", type=int, default=500, metavar="N", help="characters at most (default: 500)")
    writing.add_argument(
        "--temperature", type=float, default=1.0, metavar="X", help="0: the likeliest each time (default: 1)"
    )
    writing.add_argument("--top-k", type=int, metavar="K", help="draw among the K likeliest characters")
    writing.add_argument(
        "--top-p", type=float, default=1.0, metavar="P", help="and among the likeliest with P together"
    )
    writing.add_argument("--seed", type=int, default=1337, metavar="N", help="of the draws (default: 1337)")
    writing.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end after this; may be repeated")
    writing.add_argument("--number", type=int, default=1, metavar="N", help="of texts (default: 1)")
    writing.add_argument(
        "--unbounded", action="store_true", help="carry the state past block_size: for models without positions"
    )
    generate.add_argument(
        "--unknown",
        choices=("error", "skip"),
        default="error",
        help="characters that the model does not know: refuse them, or leave them out (default: error)",
    )
    generate.add_argument("--json", action="store_true", help="print a JSON object a text, and nothing else")
    generate.set_defaults(command=_generate)

    data = commands.add_parser("data", help="what is in a text: characters, splits, what is odd, how to train on it")
    data.add_argument("path", help="a text file, also a compressed one; a folder; a pattern such as 'texts/*.txt'; -")
    data.add_argument("--encoding", help="of files without a byte order mark (default: UTF-8)")
    data.add_argument("--newline", choices=("lf", "keep"), default="lf", help="keep: leave CRLF and CR (default: lf)")
    data.add_argument("--normalise", choices=("nfc",), help="make one character of what Unicode can write as one")
    data.add_argument("--separator", default="\n", help="between files that are joined (default: a line end)")
    data.add_argument("--prepared", default="data/prepared", metavar="FOLDER", help="for a long text's token ids")
    data.add_argument("--val-share", type=float, help="for validation (default: 0.1, of a long text what is of use)")
    data.add_argument("--test-share", type=float, default=0.0, help="after that, for testing (default: 0)")
    data.add_argument("--json", action="store_true", help="print a JSON object, and nothing else")
    data.set_defaults(command=_data)

    bench = commands.add_parser("bench", help="how quick everything is, against plain loops and the machine's limits")
    bench.add_argument(
        "kinds",
        nargs="*",
        metavar="KIND",
        help="agg, train, generate, data, sweep, startup, or all (default: none, to show what --json holds)",
    )
    bench.add_argument("--quick", action="store_true", help="some seconds each, too short to judge by")
    bench.add_argument("--threads", type=int, default=1, metavar="N", help="CPU threads of each way (default: 1)")
    bench.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="default: cpu")
    bench.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="KEYS",
        help="train: one more way to run train.py, as 'trainer.precision=bf16-mixed'; may be repeated",
    )
    bench.add_argument("--megabytes", type=int, metavar="N", help="data: of each text (default: 100, quick 4)")
    bench.add_argument("--json", type=Path, metavar="FILE", help="every repeat; what it holds of other kinds is kept")
    bench.add_argument("--svg", type=Path, metavar="FOLDER", help="a picture of each kind")
    bench.add_argument("--page", type=Path, metavar="FILE", help="write the page of every bar from what --json holds")
    bench.set_defaults(command=_bench)

    export = commands.add_parser("export", help="a trained model for other programs: safetensors, torch-export or ONNX")
    _add_run(export)
    export.add_argument(
        "--format",
        choices=("safetensors", "torch-export", "onnx"),
        default="safetensors",
        help="the weights, a program for PyTorch, or one for every machine (default: safetensors)",
    )
    export.add_argument("--out", metavar="FOLDER", help="to make (default: export/<format> in the run's own)")
    export.set_defaults(command=_export)
    return parser


def _add_run(command: argparse.ArgumentParser) -> None:
    """What every command takes that reads a trained model."""
    command.add_argument("run", help="a run's folder, a checkpoint, or a W&B run path: entity/project/run_id")
    command.add_argument(
        "--outputs",
        type=Path,
        default=Path("outputs"),
        metavar="FOLDER",
        help="where W&B's runs are (default: outputs)",
    )
    command.add_argument("--trust", action="store_true", help="run code outside trilab that the checkpoint names")


def _check(arguments: argparse.Namespace) -> None:
    with importing_torch():
        from trilab.check import check

    holds = check(
        arguments.words,
        n_embd=arguments.n_embd,
        block_size=arguments.block_size,
        inductor=arguments.inductor,
        as_json=arguments.json,
    )
    if not holds:
        sys.exit(1)


def _explain(arguments: argparse.Namespace) -> None:
    with importing_torch():
        from trilab.explain import explain

    explain(arguments.words, picture=arguments.svg, page=arguments.page)


def _report(arguments: argparse.Namespace) -> None:
    from rich.console import Console

    from trilab.report import report, write_svg

    made = report(
        arguments.folder,
        baseline=arguments.baseline,
        measure=arguments.measure,
        margin=arguments.margin,
        choose=arguments.choose,
        console=Console(),
    )
    if arguments.svg:
        write_svg(made, arguments.svg)


def _reproduce(arguments: argparse.Namespace) -> None:
    from rich.console import Console

    from trilab import stopping
    from trilab.folder import speak
    from trilab.reproduce import reproduce

    speak()
    stopping.listen()
    try:
        same = reproduce(
            arguments.report,
            row=arguments.row,
            seed=arguments.seed,
            outputs=arguments.outputs,
            logger=arguments.logger,
            console=Console(),
            trust=arguments.trust,
        )
    except stopping.Stopped as stopped:
        print(f"Stopped by {stopped.signal.name}. The same command goes on from there.", file=sys.stderr)
        sys.exit(stopped.exit_code)
    finally:
        stopping.unlisten()
    if not same:
        sys.exit(1)


def _power(arguments: argparse.Namespace) -> None:
    from rich.console import Console

    from trilab.power import noise_floor

    code = noise_floor(
        arguments.keys,
        seeds=arguments.seeds,
        difference=arguments.difference,
        as_json=arguments.json,
        console=Console(),
    )
    if code:
        sys.exit(code)


def _runs(arguments: argparse.Namespace) -> None:
    from trilab.overview import show_runs, watch_runs

    if not arguments.watch:
        show_runs(arguments.folder, baseline=arguments.baseline, as_json=arguments.json)
        return
    watch_runs(arguments.folder, baseline=arguments.baseline, every=arguments.every)


def _dashboard(arguments: argparse.Namespace) -> None:
    from trilab.dashboard import dashboard

    print(
        dashboard(arguments.experiment, project=arguments.project, entity=arguments.entity, dry_run=arguments.dry_run)
    )


def _generate(arguments: argparse.Namespace) -> None:
    from trilab.generation.generate_command import show_losses, write_texts
    from trilab.generation.sampling import Sampling

    skip_unknown = arguments.unknown == "skip"
    if arguments.encoding is not None and arguments.loss is None and arguments.prompt_file is None:
        raise BadInput("--encoding is that of a file: give --loss or --prompt-file as well, or leave it out.")
    if arguments.loss is not None:
        _refuse_writing(arguments)
        show_losses(
            arguments.run,
            arguments.loss,
            encoding=arguments.encoding,
            skip_unknown=skip_unknown,
            outputs=arguments.outputs,
            trust=arguments.trust,
            as_json=arguments.json,
        )
        return
    write_texts(
        arguments.run,
        prompt=_two_dashes(arguments.prompt),
        prompt_file=arguments.prompt_file,
        encoding=arguments.encoding,
        count=arguments.tokens,
        number=arguments.number,
        sampling=Sampling(arguments.temperature, arguments.top_k, arguments.top_p),
        seed=arguments.seed,
        stops=[_two_dashes(stop) for stop in arguments.stop],
        unbounded=arguments.unbounded,
        skip_unknown=skip_unknown,
        outputs=arguments.outputs,
        trust=arguments.trust,
        as_json=arguments.json,
    )


def _two_dashes(value: Any) -> Any:
    """A text as typed: Python before 3.13 makes an empty list of --prompt=--."""
    return "--" if value == [] else value


def _data(arguments: argparse.Namespace) -> None:
    from trilab.corpora.file import read
    from trilab.data_command import inspect, show, useful_share
    from trilab.folder import speak
    from trilab.override import override
    from trilab.reading.standard_input import keep

    if not arguments.json:
        speak(sys.stderr)
    path = str(keep(Path(arguments.prepared))) if arguments.path == "-" else arguments.path
    settings = {name: getattr(arguments, name) for name in ("encoding", "newline", "normalise", "separator")}
    corpus = read(path, **settings, prepared=arguments.prepared)
    val_share = useful_share(corpus) if arguments.val_share is None else arguments.val_share
    shares = {"val_share": val_share, "test_share": arguments.test_share}
    given = {name: value for name, value in settings.items() if value not in (None, "lf", "\n")}
    if arguments.prepared != "data/prepared":
        given["prepared"] = arguments.prepared
    keys = [override(f"data.{name}", value) for name, value in {"path": path, **given}.items()]
    show(inspect(corpus, **shares), ["data=file", *keys], **shares, as_json=arguments.json)


def _bench(arguments: argparse.Namespace) -> None:
    from rich.console import Console

    from trilab.bench import bench

    if arguments.threads < 1:
        raise BadInput(f"--threads={arguments.threads} must be at least 1.")
    if arguments.megabytes is not None and arguments.megabytes < 1:
        raise BadInput(f"--megabytes={arguments.megabytes} must be at least 1.")
    bench(
        arguments.kinds,
        quick=arguments.quick,
        threads=arguments.threads,
        device=arguments.device,
        also=arguments.also,
        megabytes=arguments.megabytes,
        json=arguments.json,
        svg=arguments.svg,
        page=arguments.page,
        console=Console(),
    )


def _export(arguments: argparse.Namespace) -> None:
    from trilab.named_run import find_run

    with importing_torch():
        from trilab.export import export

    if arguments.out == "":
        raise BadInput("--out is empty: give a folder to make, or leave it out.")
    out = None if arguments.out is None else Path(arguments.out)
    run = find_run(arguments.run, arguments.outputs)
    print(export(run, format=arguments.format, out=out, trust=arguments.trust))


def _refuse_writing(arguments: argparse.Namespace) -> None:
    default = _parser().parse_args(["generate", "RUN"])
    for name in ("tokens", "temperature", "top_k", "top_p", "seed", "stop", "number", "unbounded"):
        if getattr(arguments, name) != getattr(default, name):
            raise BadInput(
                f"--{name.replace('_', '-')} is for writing, and --loss writes nothing: leave one of them out."
            )


if __name__ == "__main__":
    main()
