"""The sweeper of every trilab sweep. Hydra takes sweepers from this namespace only, and imports what is in it at once.

So it is imported by every program that uses Hydra beside trilab, and imports nothing of trilab before it is asked.
"""

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper


class GridSweeper(BasicSweeper):
    """Every combination of the values given, as Hydra's own; with sweep.until_decided=true further seeds after that."""

    def is_done(self) -> bool:
        """Whether all is launched that there is to launch: asked when a batch has ended."""
        if not super().is_done():
            return False
        from trilab.sweep import further_runs

        further = further_runs()
        if further:
            assert self.overrides is not None
            self.overrides = [*self.overrides, further]
        return not further
