"""The rules for Prometheus and the dashboard for Grafana: right by promtool, and of metrics that a server has."""

import json
import pathlib
import re
import shutil
import subprocess
import unittest
import urllib.request

import harness
from harness import np

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
RULES = sorted((DEPLOY / "prometheus").glob("*.rules.yml"))
# Only with an NVIDIA GPU and its driver.
OF_GPUS = {"reduced_gpu_memory_used_bytes", "reduced_gpu_memory_bytes", "reduced_gpu_utilisation_ratio"}
# Only with certificates or tokens: security_test.py and tokens_test.py have them.
OF_FILES = {"reduced_certificate_expiry_time_seconds", "reduced_reload_failed"}
METRIC = re.compile(r"(?<![\w:$])(?:reduced|process)_[a-z0-9_]+(?![\w:])")
RECORDED = re.compile(r"(?<![\w:])[a-z_]+:reduced_[a-z0-9_]+:[a-z0-9_]+")


def expressions():
    """Every expression of the rules and the dashboard."""
    dashboard = json.loads((DEPLOY / "grafana/reduced.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    found += [variable["query"]["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
    return found + [path.read_text() for path in RULES]


class RulesTest(unittest.TestCase):
    def promtool(self, *arguments):
        promtool = shutil.which("promtool")
        if promtool is None:
            self.skipTest("no promtool (Debian: prometheus)")
        run = subprocess.run([promtool, *arguments], capture_output=True, timeout=harness.DEADLINE_S, check=False)
        self.assertEqual(run.returncode, 0, (run.stdout + run.stderr).decode())
        return run.stdout.decode()

    def test_they_are_rules(self):
        self.assertEqual(len(RULES), 2)
        self.assertEqual(self.promtool("check", "rules", *map(str, RULES)).count("SUCCESS"), 2)
        self.promtool("check", "config", str(DEPLOY / "prometheus/prometheus.yml"))

    def test_they_say_what_they_should(self):
        self.assertIn("SUCCESS", self.promtool("test", "rules", str(DEPLOY / "prometheus/rules_test.yml")))

    def test_every_alert_is_tested(self):
        alerts = re.findall(r"- alert: (\w+)", (DEPLOY / "prometheus/alerts.rules.yml").read_text())
        tests = (DEPLOY / "prometheus/rules_test.yml").read_text()
        fired = set(re.findall(r"alertname: (\w+)\n\s+eval_time: \S+\n\s+exp_alerts:", tests))
        self.assertEqual(set(alerts), fired)

    def test_what_is_asked_for_is_recorded(self):
        recorded = re.findall(r"- record: (\S+)", (DEPLOY / "prometheus/recording.rules.yml").read_text())
        asked = {name for text in expressions() for name in RECORDED.findall(text)}
        self.assertTrue(asked)
        self.assertLessEqual(asked, set(recorded))


class NamesTest(harness.ServedTest):
    def test_every_metric_that_is_asked_for_exists(self):
        self.reduce(self.save(np.ones(100, np.float32)), "sum", "--via", "stream")
        with urllib.request.urlopen(self.server.http() + "metrics", timeout=harness.DEADLINE_S) as answer:
            text = answer.read().decode()
        served = {re.split(r"[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")}
        asked = {name for text in expressions() for name in METRIC.findall(text)}
        self.assertGreater(len(asked), 15)
        # Words of the descriptions, which are no metrics, have no business to look like one.
        self.assertEqual(asked - served - OF_GPUS - OF_FILES, set())

    def test_the_dashboard_is_one(self):
        dashboard = json.loads((DEPLOY / "grafana/reduced.json").read_text())
        identifiers = [panel["id"] for panel in dashboard["panels"]]
        self.assertEqual(len(identifiers), len(set(identifiers)))
        taken = set()
        for panel in dashboard["panels"]:
            place = panel["gridPos"]
            self.assertLessEqual(place["x"] + place["w"], 24, panel["title"])
            for x in range(place["x"], place["x"] + place["w"]):
                for y in range(place["y"], place["y"] + place["h"]):
                    self.assertNotIn((x, y), taken, f"{panel['title']} lies on another panel")
                    taken.add((x, y))


if __name__ == "__main__":
    unittest.main()
