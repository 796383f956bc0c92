"""`trilab dashboard`: an experiment's workspace and report on W&B, through wandb-workspaces.

What they show is what `tracking` logs: its names stand here once more, since that file loads torch.
"""

import importlib.util
import json
from types import ModuleType
from typing import Any

from trilab.errors import BadInput

STEPS = "trainer/global_step"
POSITION, NATS = "position", "nats"  # columns of the chart loss_by_position


def dashboard(experiment: str, *, project: str, entity: str | None, dry_run: bool) -> str:
    """Build them, and save them on W&B.

    Args:
        experiment: the runs' group.
        project: where the runs are.
        entity: whose; None is the default of whoever is logged in.
        dry_run: nothing is sent, nobody needs to be logged in.
    Returns:
        The two addresses, a line each; with dry_run, as JSON, what would be sent.
    Raises:
        BadInput: wandb-workspaces is not installed, nobody is logged in, or W&B refuses.
    """
    for what, name in (("EXPERIMENT", experiment), ("--project", project), ("--entity", entity)):
        if name is not None and (not name.strip() or "/" in name):
            raise BadInput(f"{what} {name!r} is no name: it must not be empty, nor have a / in it.")
    if importlib.util.find_spec("wandb_workspaces") is None:
        raise BadInput("trilab dashboard needs a package that is not installed: pip install 'trilab[dashboard]'.")
    if dry_run:
        view, page = (
            workspace(experiment, project, entity or ""),
            report(experiment, project, entity or "", known=False),
        )
        sent = {"workspace": _plain(view), "report": _plain(page)}
        return json.dumps(sent, indent=2)
    try:
        whose = entity or _default_entity()
        view = workspace(experiment, project, whose).save()
        page = report(experiment, project, whose, known=True)
        page.save()
    except Exception as error:  # whatever the client and the server make of a missing key, project or connection
        raise BadInput(
            f"W&B does not take the dashboard of {entity or 'you'}/{project}: {error} Log in with `wandb login`, and "
            "have at least one run of the experiment online (wandb sync)."
        ) from error
    return f"{view.url}\n{page.url}"


def workspace(experiment: str, project: str, entity: str) -> Any:
    """A saved view of the project: the experiment's runs, a strategy a group, and what to look at first."""
    ws = _workspaces()

    return ws.Workspace(
        entity=entity,
        project=project,
        name=experiment,
        sections=[
            ws.Section(name="Validation loss", is_open=True, panels=_losses()),
            ws.Section(name="Cost", is_open=True, panels=_costs()),
            ws.Section(name="What was learned", is_open=True, panels=_learned()),
            ws.Section(name="Verdicts", is_open=True, panels=_verdicts()),
        ],
        settings=ws.WorkspaceSettings(x_axis=STEPS, smoothing_type="none"),
        runset_settings=ws.RunsetSettings(
            filters=_of(experiment),
            groupby=[ws.Metric("JobType")],
            order=[ws.Ordering(ws.Summary("best_val_loss"), ascending=True)],
            pinned_columns=["run:jobType", "summary:val_loss", "summary:best_val_loss", "summary:n_params"],
        ),
        auto_generate_panels=False,
    )


def report(experiment: str, project: str, entity: str, *, known: bool) -> Any:
    """A page with the same panels and a sentence to each.

    Args:
        known: whether the server can be asked for the project, which is what ties the panels to it.
    """
    wr = _reports()

    def grid(panels: list[Any]) -> Any:
        runs = wr.Runset(
            entity=entity if known else "",
            project=project if known else "",
            name=experiment,
            filters=_of(experiment),
            groupby=["JobType"],
        )
        return wr.PanelGrid(runsets=[runs], panels=panels)

    return wr.Report(
        project=project,
        entity=entity,
        title=experiment,
        description="Ways for a language model to look back, compared.",
        blocks=[
            wr.H1("Validation loss by strategy"),
            wr.P("Nats per character; lines and bars are means over the seeds of a strategy."),
            grid(_losses()),
            wr.H1("What it costs"),
            wr.P(
                "The best validation loss of each run against its parameters, and against the arithmetic of training."
            ),
            grid(_costs()),
            wr.H1("What was learned"),
            wr.P(
                "What each position takes from each earlier one, and what the models write: move the slider of steps."
            ),
            grid(_learned()),
            wr.H1("Verdicts"),
            wr.P("Differences paired by seed; logged at the end of a sweep as the run of job type report."),
            grid(_verdicts()),
        ],
    )


def _workspaces() -> ModuleType:
    """Imported by name, since a type checker cannot see what the package hands on, nor the package where it is not."""
    return importlib.import_module("wandb_workspaces.workspaces")


def _reports() -> ModuleType:
    """Likewise."""
    return importlib.import_module("wandb_workspaces.reports.v2")


def _of(experiment: str) -> str:
    """The filter that lets its runs through."""
    return f"Metric('Group') = {experiment!r}"


def _losses() -> list[Any]:
    wr = _reports()

    return [
        wr.LinePlot(
            title="validation loss by strategy",
            x=STEPS,
            y=["val/loss"],
            title_x="optimizer steps",
            title_y="nats per character",
            groupby="JobType",
            groupby_aggfunc="mean",
            groupby_rangefunc="minmax",
        ),
        wr.BarPlot(
            title="best validation loss",
            metrics=[wr.SummaryMetric("best_val_loss")],
            title_x="nats per character",
            groupby="JobType",
            groupby_aggfunc="mean",
            groupby_rangefunc="minmax",
        ),
        wr.CustomChart(
            query={"summaryTable": {"tableKey": "loss_by_position_table"}},
            chart_name="wandb/line/v0",
            chart_fields={"x": POSITION, "y": NATS},
            chart_strings={"title": "loss by position in the window"},
        ),
    ]


def _costs() -> list[Any]:
    wr = _reports()

    best = wr.SummaryMetric("best_val_loss")
    return [
        wr.ScatterPlot(title="loss against parameters", x=wr.SummaryMetric("n_params"), y=best, log_x=True),
        wr.ScatterPlot(
            title="loss against FLOPs a character", x=wr.SummaryMetric("flops_per_char"), y=best, log_x=True
        ),
    ]


def _learned() -> list[Any]:
    wr = _reports()

    return [
        wr.MediaBrowser(title="tables of weights", media_keys=["weights/layer_0"], gallery_axis="step"),
        wr.WeavePanelSummaryTable(table_name="sample"),
    ]


def _verdicts() -> list[Any]:
    wr = _reports()

    return [wr.WeavePanelSummaryTable(table_name="verdicts"), wr.MediaBrowser(title="report", media_keys=["report"])]


def _plain(view: Any) -> Any:
    """What the package sends for it."""
    return json.loads(view._to_model().model_dump_json(by_alias=True))


def _default_entity() -> str:
    wr = _reports()

    return str(wr.Report(project="").entity)
