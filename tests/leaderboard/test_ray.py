"""A suite on a Ray cluster, whose machines come and go."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.leaderboard.cases import bench, few
from tests.processes import wait_for
from tsattn.leaderboard.records import LABELS

pytest.importorskip("ray", reason="ray is not installed, so no suite is run on a cluster")

pytestmark = pytest.mark.slow

COLUMNS = [*LABELS, "status", "key", "mse", "mae", "validation_mse"]


def test_one_of_two_nodes_goes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    slow = {"kind": "tests.leaderboard.cases.Slow", "gate": str(tmp_path / "gate")}
    other = {"backbone": slow, "values": {"model.weight_decay": 0.1}}
    made = bench(tmp_path, **few(slow={"backbone": slow}, other=other))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        node = cluster.add_node(num_cpus=1)
        worker = made.start("--ray", cluster.address)
        ends = worker.process
        wait_for(
            lambda: len(list(tmp_path.glob("waits.*"))) == 2 or not ends.is_alive(), worker.said
        )  # one on each node
        assert ends.is_alive(), worker.said()
        cluster.remove_node(node)
        (tmp_path / "gate").touch()
        assert worker.end() == 0, worker.said()
    finally:
        cluster.shutdown()
    assert len(list(tmp_path.glob("waits.*"))) == 3  # what was lost was begun again
    frame = made.records().frame
    assert frame["status"].tolist() == ["done"] * 5, worker.said()
    assert len(made.recorded()) == 5
    assert len(list((made.runs / "runs").glob("*/errors.parquet"))) == 5
    here = bench(tmp_path / "here", **few())
    assert here.run() == 0
    expected = here.records().frame[COLUMNS]
    found = frame[frame["predictor"].isin(expected["predictor"])]
    pd.testing.assert_frame_equal(found[COLUMNS].reset_index(drop=True), expected)
