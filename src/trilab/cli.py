"""`trilab …`: everything that is not a training key. Each command imports what it needs when it is called."""

import argparse
import io
import sys
from pathlib import Path

from trilab import __version__
from trilab.errors import BadInput


def main() -> None:
    """Run one command.

    Exit code 0, 1 (a law does not hold, a row is not reproduced), 2 (bad input), 130 (Ctrl-C while watching), or 128
    and the number of the signal that stopped a training.
    """
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
    except BadInput as error:
        print(error, file=sys.stderr)
        sys.exit(2)


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
        choices=("val_loss", "best_val_loss", "test_loss"),
        help="what rows are judged by: the loss at the end, the lowest, or on the test split (default: the config's)",
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

    generate = commands.add_parser("generate", help="text from a finished run")
    generate.add_argument("run", type=Path, help="a run's folder, or a checkpoint")
    generate.add_argument("--prompt", help="how the text begins (default: a line end)")
    generate.add_argument("--tokens", type=int, default=500, help="characters to write (default: 500)")
    generate.add_argument("--temperature", type=float, default=1.0, help="0: the likeliest each time (default: 1)")
    generate.add_argument("--seed", type=int, default=1337, help="of the draws (default: 1337)")
    generate.add_argument(
        "--unbounded", action="store_true", help="carry the state past block_size: for models without positions"
    )
    generate.set_defaults(command=_generate)
    return parser


def _check(arguments: argparse.Namespace) -> None:
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
    try:
        watch_runs(arguments.folder, baseline=arguments.baseline, every=arguments.every)
    except KeyboardInterrupt:
        sys.exit(130)  # 128 + SIGINT, as a shell counts


def _dashboard(arguments: argparse.Namespace) -> None:
    from trilab.dashboard import dashboard

    print(
        dashboard(arguments.experiment, project=arguments.project, entity=arguments.entity, dry_run=arguments.dry_run)
    )


def _generate(arguments: argparse.Namespace) -> None:
    from trilab.run import write_text
    from trilab.terminal import harmless

    text = write_text(
        arguments.run,
        prompt=arguments.prompt,
        count=arguments.tokens,
        temperature=arguments.temperature,
        seed=arguments.seed,
        unbounded=arguments.unbounded,
    )
    print(harmless(text) if sys.stdout.isatty() else text)  # a file gets what was written


if __name__ == "__main__":
    main()
