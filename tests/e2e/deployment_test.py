"""The files in deploy/ that others read: Compose, Kubernetes, systemd. Whether they are well formed, agree with each other,
and name flags, ports and commands that the programs have."""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

import harness
import kubernetes_schema
from harness import DEADLINE_S

try:
    import yaml
except ImportError:
    print("SKIPPED: the files are read by PyYAML, which isn't there (Debian: python3-yaml)")
    raise SystemExit(harness.SKIPPED) from None

DEPLOY = harness.DATA.parent.parent / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
UNIT = DEPLOY / "systemd" / "reduced.service"
GROUP = 10001  # of the image
CLOSE_S = 5  # what a server may take to end after its drain


def run(*command, **keywords):
    return subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        **keywords,
    )


def load(path):
    return yaml.safe_load(path.read_text())


def objects(path):
    """Of Kubernetes, by kind: those in a file, or those in files that a kustomization in a folder lists."""
    if path.is_dir():
        files = [path / name for name in load(path / "kustomization.yaml").get("resources", []) if name.endswith(".yaml")]
        return {kind: each for file in files for kind, each in objects(file).items()}
    return {each["kind"]: each for each in yaml.safe_load_all(path.read_text())}


def flag(command, name):
    (value,) = [word.partition("=")[2] for word in command if word.startswith(f"--{name}=")]
    return value


def seconds(duration):
    return int(re.fullmatch(r"([0-9]+)s", duration)[1])


def unit_lines(section):
    """The settings of a section of the unit, in order: (name, value)."""
    text = re.search(rf"^\[{section}\]\n(.*?)(?=^\[|\Z)", UNIT.read_text(), re.MULTILINE | re.DOTALL)[1]
    return [tuple(line.split("=", 1)) for line in text.splitlines() if line and not line.startswith("#")]


def unit_flags():
    prefix = "REDUCED_FLAG_"
    settings = [value.split("=", 1) for name, value in unit_lines("Service") if name == "Environment"]
    return [f"--{name.removeprefix(prefix).lower()}={value}" for name, value in settings if name.startswith(prefix)]


def dockerfile_command():
    return json.loads(re.search(r"^CMD (\[.*\])$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)[1])


def compose_servers():
    services = load(DEPLOY / "compose.yaml")["services"]
    return {name: service for name, service in services.items() if "command" in service}


def container(deployment):
    return deployment["spec"]["template"]["spec"]["containers"][0]


def check_pods(test, all_objects):
    """That the objects of an installation go together."""
    deployment = all_objects["Deployment"]
    pod = deployment["spec"]["template"]
    labels = pod["metadata"]["labels"]
    server = container(deployment)
    ports = {port["name"]: port["containerPort"] for port in server["ports"]}

    def matches(selector, what=labels):
        test.assertLessEqual(selector.items(), what.items())
        test.assertTrue(selector)

    matches(deployment["spec"]["selector"]["matchLabels"])
    for spread in pod["spec"].get("topologySpreadConstraints", ()):
        matches(spread["labelSelector"]["matchLabels"])
    matches(all_objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"])
    policy = all_objects["NetworkPolicy"]["spec"]
    matches(policy["podSelector"]["matchLabels"])
    test.assertEqual([port["port"] for rule in policy["ingress"] for port in rule["ports"]], list(ports))
    service = all_objects["Service"]
    matches(service["spec"]["selector"])
    for port in service["spec"]["ports"]:
        test.assertEqual(ports[port["targetPort"]], port["port"])
    if monitor := all_objects.get("ServiceMonitor"):
        matches(monitor["spec"]["selector"]["matchLabels"], service["metadata"]["labels"])
        named = {port["name"] for port in service["spec"]["ports"]}
        test.assertLessEqual({endpoint["port"] for endpoint in monitor["spec"]["endpoints"]}, named)
    if route := all_objects.get("GRPCRoute"):
        gateway = all_objects["Gateway"]
        test.assertEqual(route["spec"]["parentRefs"], [{"name": gateway["metadata"]["name"]}])
        test.assertEqual(route["spec"]["hostnames"], [listener["hostname"] for listener in gateway["spec"]["listeners"]])
        (rule,) = route["spec"]["rules"]
        (backend,) = rule["backendRefs"]
        test.assertEqual(backend["name"], service["metadata"]["name"])
        test.assertIn(backend["port"], [port["port"] for port in service["spec"]["ports"] if port["name"] == "grpc"])
    if dashboard := all_objects.get("ConfigMap"):
        (name,) = dashboard["data"]
        test.assertEqual(json.loads(dashboard["data"][name]), json.loads((DEPLOY / "grafana" / name).read_text()))
    if scaler := all_objects.get("HorizontalPodAutoscaler"):
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment["metadata"]["name"]}
        test.assertEqual(scaler["spec"]["scaleTargetRef"], target)
        test.assertLessEqual(scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"])
        test.assertNotIn("replicas", deployment["spec"], "who scales?")

    args = server["args"]
    unix, tcp = flag(args, "listen").split(",")
    test.assertEqual(tcp, f"0.0.0.0:{ports['grpc']}")
    test.assertEqual(flag(args, "metrics_listen"), f"0.0.0.0:{ports['metrics']}")
    test.assertLessEqual(set(re.findall(r"\$\((\w+)\)", " ".join(args))), {each["name"] for each in server["env"]})

    encrypted = any(arg.startswith("--tls_cert=") for arg in args)
    test.assertEqual("--allow_plaintext" in args, not encrypted)
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        probe = server[name]
        test.assertEqual(set(probe) & {"grpc", "exec"}, {"exec" if encrypted else "grpc"})
        if encrypted:
            test.assertIn(unix, probe["exec"]["command"])
        else:
            test.assertEqual(probe["grpc"]["port"], ports["grpc"])
            test.assertIn(probe["grpc"].get("service", ""), ("", "reduced.v1.Reduction"))
    test.assertEqual(any("appProtocol" in port for port in service["spec"]["ports"]), not encrypted)

    mounts = {mount["mountPath"]: mount["name"] for mount in server["volumeMounts"]}
    test.assertLessEqual(set(mounts.values()), {volume["name"] for volume in pod["spec"]["volumes"]})
    folders = [str(pathlib.PurePath(unix.removeprefix("unix:")).parent)]
    folders += [str(pathlib.PurePath(flag(args, name)).parent) for name in ("tls_cert", "tls_key") if encrypted]
    folders += [str(pathlib.PurePath(flag(args, "token_file")).parent) for arg in args if arg.startswith("--token_file=")]
    test.assertLessEqual(set(folders), set(mounts))
    # The probes have no token.
    test.assertEqual("--open_health" in args, any(arg.startswith("--token_file=") for arg in args))

    drain = seconds(flag(args, "drain_delay")) + seconds(flag(args, "drain_timeout"))
    drain += server["lifecycle"]["preStop"]["sleep"]["seconds"]
    test.assertGreaterEqual(pod["spec"]["terminationGracePeriodSeconds"], drain + CLOSE_S)
    alive = server["livenessProbe"]
    test.assertGreaterEqual(alive["failureThreshold"] * alive["periodSeconds"], drain)

    context = pod["spec"]["securityContext"]
    test.assertTrue(context["runAsNonRoot"])
    test.assertEqual({context[name] for name in ("runAsUser", "runAsGroup", "fsGroup")}, {GROUP})
    test.assertTrue(server["securityContext"]["readOnlyRootFilesystem"])
    test.assertFalse(server["securityContext"]["allowPrivilegeEscalation"])
    test.assertFalse(pod["spec"]["automountServiceAccountToken"])
    resources = server["resources"]
    test.assertEqual(resources["requests"].get("nvidia.com/gpu"), resources["limits"].get("nvidia.com/gpu"))


class FlagsTest(unittest.TestCase):
    """All that the files have the programs told exists."""

    def commands(self):
        yield "Dockerfile", dockerfile_command()
        for name, service in compose_servers().items():
            yield f"compose.yaml, {name}", service["command"]
        deployment = objects(KUBERNETES / "base")["Deployment"]
        yield "kubernetes/base", [arg.replace("$(CPU_LIMIT)", "4") for arg in container(deployment)["args"]]
        yield "systemd", unit_flags()

    def test_flags_exist(self):
        text = run(os.environ["REDUCED"], "--help").stdout
        known = set(re.findall(r"^  --(\w+)=", text, re.MULTILINE))
        self.assertIn("listen", known, text)
        said = {where: re.findall(r"--(\w+)", " ".join(command)) for where, command in self.commands()}
        tls = (KUBERNETES / "components/tls/kustomization.yaml").read_text()
        said["components/tls"] = re.findall(r"--([a-z]\w+)", tls)
        said["components/tokens"] = re.findall(r"value: --([a-z]\w+)", (KUBERNETES / "components/tokens/kustomization.yaml").read_text())
        said["haproxy.cfg"] = re.findall(r" --([a-z]\w+)", (DEPLOY / "haproxy.cfg").read_text())
        exec_lines = [value for name, value in unit_lines("Service") if name.startswith("Exec")]
        said["systemd, Exec"] = re.findall(r"--(\w+)", " ".join(exec_lines))
        for where, names in said.items():
            self.assertTrue(names, where)
            for name in names:
                with self.subTest(where=where, flag=name):
                    self.assertIn(name, known, "not in reduced --help")

    def test_the_server_takes_them(self):
        with tempfile.TemporaryDirectory() as folder:
            for where, command in self.commands():
                with self.subTest(where):
                    command = [word.replace("/run/reduced", folder) for word in command]
                    checked = run(os.environ["REDUCED"], "--check_config", *command, env=harness.environment())
                    self.assertEqual(checked.returncode, 0, checked.stdout)

    def test_probes_are_commands(self):
        patch = load(KUBERNETES / "components/tls/probes.yaml")
        probes = container(patch)
        health = re.search(r"^HEALTHCHECK.*?CMD (\[.*?\])$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE | re.DOTALL)
        commands = [probes[name]["exec"]["command"] for name in ("startupProbe", "readinessProbe", "livenessProbe")]
        for program, *arguments in [*commands, json.loads(health[1])]:
            self.assertEqual(program, "/opt/reduced/bin/reducectl")
            # No server there, but every word of it understood.
            arguments = [word.replace("unix:/run/reduced/socket", "unix:/does/not/exist") for word in arguments]
            asked = run(*harness.command(*arguments), env=harness.environment("unix:/does/not/exist"))
            self.assertEqual(asked.returncode, 3, asked.stdout)


class YamlTest(unittest.TestCase):
    @unittest.skipIf(shutil.which("yamllint") is None, "yamllint isn't installed")
    def test_style(self):
        config = DEPLOY.parent / ".yamllint"
        linted = run("yamllint", "--strict", "-c", config, DEPLOY)
        self.assertEqual(linted.returncode, 0, linted.stdout)

    def test_every_object_of_kubernetes(self):
        overlays = KUBERNETES / "overlays"
        patches = {KUBERNETES / "components/tls/probes.yaml", overlays / "gpu/gpu.yaml", overlays / "gpu-node/node.yaml"}
        values = {KUBERNETES / "components/monitoring/adapter-rule.yaml"}
        files = set(KUBERNETES.rglob("*.yaml")) - patches - values
        self.assertGreater(len(files), 8)
        for file in files:
            for each in yaml.safe_load_all(file.read_text()):
                self.assertEqual(kubernetes_schema.object_errors(each, str(file)), [])

    def test_a_mistake_is_found(self):
        deployment = objects(KUBERNETES / "base")["Deployment"]
        container(deployment)["readinesProbe"] = container(deployment).pop("readinessProbe")
        deployment["spec"]["replicas"] = "2"
        found = "\n".join(kubernetes_schema.object_errors(deployment, "it"))
        for what in ("containers[0]: no readinessProbe", "readinesProbe isn't a field", "it.spec.replicas: '2' isn't"):
            self.assertIn(what, found)

    def test_the_rules_are_those_of_prometheus(self):
        rules = load(KUBERNETES / "components/monitoring/prometheusrule.yaml")["spec"]["groups"]
        files = [DEPLOY / "prometheus" / f"{name}.rules.yml" for name in ("recording", "alerts")]
        self.assertEqual(rules, [group for file in files for group in load(file)["groups"]])

    def test_kustomizations_name_what_is_there(self):
        for file in DEPLOY.rglob("kustomization.yaml"):
            kustomization = load(file)
            names = kustomization.get("resources", []) + kustomization.get("components", [])
            names += [name for each in kustomization.get("configMapGenerator", []) for name in each["files"]]
            names += [patch["path"] for patch in kustomization.get("patches", []) if "path" in patch]
            names += re.findall(r"^#   - (\.\./\S+)$", file.read_text(), re.MULTILINE)  # for whoever wants them
            for name in names:
                self.assertTrue((file.parent / name).exists(), f"{file}: {name}")


class KubernetesTest(unittest.TestCase):
    def test_the_base(self):
        check_pods(self, objects(KUBERNETES / "base"))

    def test_the_autoscaler_has_its_metric(self):
        scaler = objects(KUBERNETES / "components/monitoring")["HorizontalPodAutoscaler"]
        rules = load(KUBERNETES / "components/monitoring/adapter-rule.yaml")["rules"]["custom"]
        wanted = {metric["pods"]["metric"]["name"] for metric in scaler["spec"]["metrics"]}
        self.assertEqual(wanted, {rule["name"]["as"] for rule in rules})

    @unittest.skipIf(shutil.which("promtool") is None, "promtool isn't installed (Debian: prometheus)")
    def test_what_the_autoscaler_scales_by(self):
        (rule,) = load(KUBERNETES / "components/monitoring/adapter-rule.yaml")["rules"]["custom"]
        query = rule["metricsQuery"]
        for template, value in {
            "<<.Series>>": "reduced_stage_seconds_bucket",
            "<<.LabelMatchers>>": 'namespace="here"',
            "<<.GroupBy>>": "pod",
        }.items():
            query = query.replace(template, value)
        self.assertNotIn("<<", query)

        def series(pod, bounds, stage="queue"):
            labels = f'namespace="here",pod="{pod}",stage="{stage}"'
            return [
                {"series": f'reduced_stage_seconds_bucket{{{labels},le="{bound}"}}', "values": f"0+{count}x20"}
                for bound, count in bounds.items()
            ]

        busy, quick, idle = {"0.001": 0, "0.02": 60, "+Inf": 60}, {"0.001": 60, "+Inf": 60}, {"0.001": 0, "+Inf": 0}
        test = {
            "interval": "15s",
            "input_series": series("busy", busy) + series("quick", quick) + series("idle", idle) + series("quick", busy, "kernel"),
            "promql_expr_test": [
                {
                    "expr": f"({query}) > bool 0.005",
                    "eval_time": "5m",
                    "exp_samples": [
                        {"labels": f'{{pod="{pod}"}}', "value": value} for pod, value in (("busy", 1), ("quick", 0), ("idle", 0))
                    ],
                }
            ],
        }
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "test.yaml"
            file.write_text(yaml.safe_dump({"rule_files": [], "evaluation_interval": "15s", "tests": [test]}))
            tested = run("promtool", "test", "rules", file)
        self.assertEqual(tested.returncode, 0, tested.stdout)

    @unittest.skipIf(shutil.which("kubectl") is None, "kubectl, whose kustomize renders them, isn't installed")
    def test_the_overlays_rendered_with_and_without_components(self):
        for overlay in ("cpu", "gpu"):
            for components in ("", "tls", "tokens", "monitoring", "gateway tokens", "tls tokens monitoring"):
                with self.subTest(overlay=overlay, components=components), tempfile.TemporaryDirectory() as folder:
                    copy = pathlib.Path(folder) / "kubernetes"
                    shutil.copytree(KUBERNETES, copy)
                    shutil.copytree(DEPLOY / "grafana", copy.parent / "grafana")
                    file = copy / "overlays" / overlay / "kustomization.yaml"
                    kustomization = load(file)
                    kustomization["components"] = [f"../../components/{name}" for name in components.split()]
                    file.write_text(yaml.safe_dump(kustomization))
                    rendered = run("kubectl", "kustomize", file.parent)
                    if "unknown field" in rendered.stdout and not components:
                        self.skipTest("this kubectl's kustomize is too old: " + rendered.stdout[:200])
                    self.assertEqual(rendered.returncode, 0, rendered.stdout)
                    every = {each["kind"]: each for each in yaml.safe_load_all(rendered.stdout)}
                    for kind, each in every.items():
                        self.assertEqual(kubernetes_schema.object_errors(each, kind), [])
                    check_pods(self, every)
                    of_components = {"monitoring": {"ServiceMonitor", "PrometheusRule", "ConfigMap"}, "gateway": {"GRPCRoute"}}
                    for component, kinds in of_components.items():
                        self.assertEqual(kinds & set(every), kinds if component in components else set())
                    tokens = any(arg.startswith("--token_file=") for arg in container(every["Deployment"])["args"])
                    self.assertEqual(tokens, "tokens" in components)
                    gpus = container(every["Deployment"])["resources"]["limits"].get("nvidia.com/gpu")
                    self.assertEqual(gpus, "1" if overlay == "gpu" else None)


class ComposeTest(unittest.TestCase):
    def test_the_file(self):
        compose = load(DEPLOY / "compose.yaml")
        self.assertEqual(kubernetes_schema.errors(compose, kubernetes_schema.COMPOSE, "compose.yaml"), [])
        user, group = compose["services"]["reducectl"]["user"].split(":")
        self.assertNotEqual(user, group)
        self.assertEqual(group, str(GROUP))
        volumes = {name: set(service["volumes"]) for name, service in compose["services"].items()}
        self.assertEqual(volumes["cpu"], volumes["reducectl"])
        self.assertEqual({volume.split(":")[0] for volume in volumes["cpu"]}, set(compose["volumes"]))

    def test_servers(self):
        servers = compose_servers()
        self.assertEqual({name: service["profiles"] for name, service in servers.items()}, {"cpu": ["cpu"], "gpu": ["gpu"]})
        for name, service in servers.items():
            with self.subTest(name):
                command = service["command"]
                inside = {flag(command, "listen").split(",")[1], flag(command, "metrics_listen")}
                self.assertEqual(inside, {"0.0.0.0:" + port.split(":")[2] for port in service["ports"]})
                drain = seconds(flag(command, "drain_delay")) + seconds(flag(command, "drain_timeout"))
                self.assertGreaterEqual(seconds(service["stop_grace_period"]), drain + CLOSE_S)
                self.assertTrue(service["read_only"])
                self.assertRegex(service["image"], r"^reduced:\d+\.\d+\.\d+(-cuda)?$")
                build = service["build"]
                context = (DEPLOY / build["context"]).resolve()
                self.assertTrue((context / build["dockerfile"]).samefile(DEPLOY / "Dockerfile"))
                arguments = set(re.findall(r"^ARG (\w+)", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE))
                self.assertLessEqual(set(build.get("args", {})), arguments)


class SystemdTest(unittest.TestCase):
    def test_its_drain_fits_in(self):
        settings = dict(unit_lines("Service"))
        drain = seconds(flag(unit_flags(), "drain_delay")) + seconds(flag(unit_flags(), "drain_timeout"))
        self.assertGreaterEqual(seconds(settings["TimeoutStopSec"]), drain + CLOSE_S)
        folder = "/run/" + settings["RuntimeDirectory"]
        self.assertTrue(flag(unit_flags(), "listen").startswith(f"unix:{folder}/"))

    def test_its_user_is_made(self):
        settings = dict(unit_lines("Service"))
        users = [shlex.split(line) for line in (DEPLOY / "systemd/sysusers.conf").read_text().splitlines()]
        self.assertIn(["u", settings["User"]], [line[:2] for line in users if line])
        self.assertEqual(settings["Group"], settings["User"])

    @unittest.skipIf(shutil.which("systemd-analyze") is None, "systemd-analyze isn't installed")
    def test_systemd_takes_it_and_finds_it_confined(self):
        with tempfile.TemporaryDirectory() as folder:
            # Where the programs are that this build has made, since systemd looks for them.
            unit = pathlib.Path(folder) / UNIT.name
            unit.write_text(UNIT.read_text().replace("/opt/reduced/bin/reduced", os.environ["REDUCED"]))
            verified = run("systemd-analyze", "verify", "--man=no", unit)
            self.assertEqual((verified.returncode, verified.stdout), (0, ""))
            # Exposure in tenths, from 0 to 100.
            rated = run("systemd-analyze", "security", "--offline=true", "--threshold=20", unit)
            self.assertEqual(rated.returncode, 0, rated.stdout)


if __name__ == "__main__":
    unittest.main()
