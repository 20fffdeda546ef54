"""The rules for Prometheus, the dashboard for Grafana and the runbook: right by promtool, complete, and of metrics that a server has."""

import json
import pathlib
import re
import shutil
import subprocess
import unittest
import urllib.request

import harness
from harness import DATA
from secured import SecuredTest

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
RULES = sorted((DEPLOY / "prometheus").glob("*.rules.yml"))
# Only with an NVIDIA GPU and its driver.
OF_GPUS = {"reduced_gpu_memory_used_bytes", "reduced_gpu_memory_bytes", "reduced_gpu_utilisation_ratio"}
METRIC = re.compile(r"(?<![\w:$])(?:reduced|process)_[a-z0-9_]+(?![\w:])")
RECORDED = re.compile(r"(?<![\w:])[a-z_]+:reduced_[a-z0-9_]+:[a-z0-9_]+")


def expressions():
    """Every expression of the rules, the dashboard and the runbook."""
    dashboard = json.loads((DEPLOY / "grafana/reduced.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    found += [variable["query"]["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
    return found + [path.read_text() for path in (*RULES, DEPLOY / "RUNBOOK.md")]


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

    def test_every_alert_names_its_section_of_the_runbook(self):
        rules = (DEPLOY / "prometheus/alerts.rules.yml").read_text()
        alerts = dict(re.findall(r'- alert: (\w+)(?:(?!- alert:)[\s\S])*?\n\s+runbook: "(\S+)"\n', rules))
        self.assertEqual(list(alerts), re.findall(r"- alert: (\w+)", rules))
        runbook = (DEPLOY / "RUNBOOK.md").read_text()
        sections = dict(re.findall(r"^## (\w+)\n([\s\S]+?)(?=^## |\Z)", runbook, re.MULTILINE))
        self.assertEqual(set(sections), set(alerts), "a section is of an alert")
        for alert, link in alerts.items():
            self.assertEqual(link, f"deploy/RUNBOOK.md#{alert.lower()}")
            meaning, *steps = sections[alert].strip().split("\n- ")
            self.assertGreater(len(meaning), 40, alert)
            self.assertEqual([re.match(r"Look|Do", step)[0] for step in steps], ["Look", "Do"], alert)

    def test_what_is_asked_for_is_recorded(self):
        recorded = re.findall(r"- record: (\S+)", (DEPLOY / "prometheus/recording.rules.yml").read_text())
        asked = {name for text in expressions() for name in RECORDED.findall(text)}
        self.assertTrue(asked)
        self.assertLessEqual(asked, set(recorded))


class NamesTest(SecuredTest):
    def test_every_metric_that_is_asked_for_exists(self):
        server = self.serve_tls(f"--token_file={self.tokens(alice='secret')}")
        self.works(server.unix, "--token-file", self.folder / "alice")
        run = self.reducectl(server.unix, "--token-file", self.folder / "alice", "reduce", DATA / "co2.npy", "--op", "sum",
                             "--via", "stream")  # fmt: skip
        self.assertEqual(run.returncode, 0, run.stderr.decode())
        with urllib.request.urlopen(server.http() + "metrics", timeout=harness.DEADLINE_S) as answer:
            text = answer.read().decode()
        served = {re.split(r"[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")}
        asked = {name for text in expressions() for name in METRIC.findall(text)}
        self.assertGreater(len(asked), 15)
        # Words of the descriptions, which are no metrics, have no business to look like one.
        self.assertEqual(asked - served - OF_GPUS, set())

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
