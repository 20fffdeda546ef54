"""What the objects in deploy/ may and must have, as far as they use it, and a check of that: a field that isn't here is a
mistake, of spelling or of place, until it is put here.

A schema is a type; a regular expression, which a string matches whole; a list of one schema, for lists; or a dict of
fields. A field with ! must be there; "*" stands for any other.
"""

import re

NAME = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
LABELS = {"*": str}
SELECTOR = {"matchLabels!": LABELS}
METADATA = {"name!": NAME, "labels": LABELS}
SECONDS = int
QUANTITY = r"[0-9]+(m|Ki|Mi|Gi)?"
PERCENT_OR_COUNT = int

PROBE = {
    "grpc": {"port!": int, "service": str},
    "exec": {"command!": [str]},
    "periodSeconds!": SECONDS,
    "timeoutSeconds!": SECONDS,
    "failureThreshold!": int,
}
RESOURCES = {"cpu!": QUANTITY, "memory!": QUANTITY, "nvidia.com/gpu": r"[0-9]+"}
CONTAINER = {
    "name!": NAME,
    "image!": str,
    "args!": [str],
    "env": [{"name!": str, "valueFrom!": {"resourceFieldRef!": {"containerName!": NAME, "resource!": r"limits\.cpu"}}}],
    "ports!": [{"name!": NAME, "containerPort!": int}],
    "lifecycle!": {"preStop!": {"sleep!": {"seconds!": SECONDS}}},
    "startupProbe!": PROBE,
    "readinessProbe!": PROBE,
    "livenessProbe!": PROBE,
    "resources!": {"requests!": RESOURCES, "limits!": RESOURCES},
    "securityContext!": {
        "allowPrivilegeEscalation!": bool,
        "readOnlyRootFilesystem!": bool,
        "capabilities!": {"drop!": ["ALL"]},
    },
    "volumeMounts!": [{"name!": NAME, "mountPath!": r"/\S+", "readOnly": bool}],
}
POD = {
    "automountServiceAccountToken!": bool,
    "enableServiceLinks!": bool,
    "terminationGracePeriodSeconds!": SECONDS,
    "securityContext!": {
        "runAsNonRoot!": bool,
        "runAsUser!": int,
        "runAsGroup!": int,
        "fsGroup!": int,
        "seccompProfile!": {"type!": "RuntimeDefault|Localhost"},
    },
    "topologySpreadConstraints": [
        {
            "maxSkew!": int,
            "topologyKey!": str,
            "whenUnsatisfiable!": "DoNotSchedule|ScheduleAnyway",
            "labelSelector!": SELECTOR,
        }
    ],
    "nodeSelector": LABELS,
    "tolerations": [{"key!": str, "operator!": "Exists|Equal", "effect!": "NoSchedule|PreferNoSchedule|NoExecute"}],
    "containers!": [CONTAINER],
    "volumes!": [
        {
            "name!": NAME,
            "emptyDir": {"medium": "Memory", "sizeLimit": QUANTITY},
            "secret": {"secretName!": NAME, "defaultMode": int},
        }
    ],
}
PATCH = {"target": {"kind!": str, "name!": NAME}, "patch": str, "path": str}
KUSTOMIZATION = {
    "resources": [str],
    "configMapGenerator": [
        {"name!": NAME, "files!": [str], "options!": {"disableNameSuffixHash!": bool, "labels!": LABELS}}
    ],
    "components": [str],
    "images": [{"name!": str, "newName!": str, "newTag!": str}],
    "patches": [PATCH],
}
SCALING = {
    "stabilizationWindowSeconds": SECONDS,
    "policies!": [{"type!": "Pods|Percent", "value!": int, "periodSeconds!": SECONDS}],
}

# By apiVersion and kind.
SCHEMAS = {
    ("apps/v1", "Deployment"): {
        "metadata!": METADATA,
        "spec!": {
            "replicas": int,
            "selector!": SELECTOR,
            "strategy": {
                "type!": "RollingUpdate",
                "rollingUpdate!": {"maxSurge!": PERCENT_OR_COUNT, "maxUnavailable!": PERCENT_OR_COUNT},
            },
            "template!": {"metadata!": {"labels!": LABELS}, "spec!": POD},
        },
    },
    ("v1", "Service"): {
        "metadata!": METADATA,
        "spec!": {
            "clusterIP!": "None",
            "selector!": LABELS,
            "ports!": [{"name!": NAME, "port!": int, "targetPort!": NAME, "appProtocol": "kubernetes.io/h2c"}],
        },
    },
    ("policy/v1", "PodDisruptionBudget"): {
        "metadata!": METADATA,
        "spec!": {"maxUnavailable!": PERCENT_OR_COUNT, "selector!": SELECTOR},
    },
    ("networking.k8s.io/v1", "NetworkPolicy"): {
        "metadata!": METADATA,
        "spec!": {
            "podSelector!": SELECTOR,
            "policyTypes!": ["Ingress|Egress"],
            "ingress!": [
                {"from!": [{"podSelector": SELECTOR, "namespaceSelector": SELECTOR}], "ports!": [{"port!": NAME}]}
            ],
            "egress!": [{}],
        },
    },
    ("monitoring.coreos.com/v1", "ServiceMonitor"): {
        "metadata!": METADATA,
        "spec!": {"selector!": SELECTOR, "endpoints!": [{"port!": NAME, "interval": r"[0-9]+s"}]},
    },
    ("monitoring.coreos.com/v1", "PrometheusRule"): {
        "metadata!": METADATA,
        "spec!": {
            "groups!": [
                {
                    "name!": NAME,
                    "interval": r"[0-9]+s",
                    "rules!": [
                        {
                            "alert": r"Reduced\w+",
                            "record": r"[a-z_:0-9]+",
                            "expr!": str,
                            "for": r"[0-9]+m",
                            "labels": LABELS,
                            "annotations": {"summary!": str, "description!": str, "runbook!": str},
                        }
                    ],
                }
            ]
        },
    },
    ("v1", "ConfigMap"): {"metadata!": METADATA, "data!": {"*": str}},
    ("gateway.networking.k8s.io/v1", "Gateway"): {
        "metadata!": METADATA,
        "spec!": {
            "gatewayClassName!": NAME,
            "listeners!": [
                {
                    "name!": NAME,
                    "protocol!": "HTTPS",
                    "port!": int,
                    "hostname!": str,
                    "tls!": {"mode!": "Terminate", "certificateRefs!": [{"name!": NAME}]},
                }
            ],
        },
    },
    ("gateway.networking.k8s.io/v1", "GRPCRoute"): {
        "metadata!": METADATA,
        "spec!": {
            "parentRefs!": [{"name!": NAME}],
            "hostnames!": [str],
            "rules!": [
                {"matches!": [{"method!": {"service!": str}}], "backendRefs!": [{"name!": NAME, "port!": int}]}
            ],
        },
    },
    ("autoscaling/v2", "HorizontalPodAutoscaler"): {
        "metadata!": METADATA,
        "spec!": {
            "scaleTargetRef!": {"apiVersion!": str, "kind!": str, "name!": NAME},
            "minReplicas!": int,
            "maxReplicas!": int,
            "metrics!": [
                {
                    "type!": "Pods",
                    "pods!": {
                        "metric!": {"name!": str},
                        "target!": {"type!": "AverageValue", "averageValue!": QUANTITY},
                    },
                }
            ],
            "behavior": {"scaleUp": SCALING, "scaleDown": SCALING},
        },
    },
    ("kustomize.config.k8s.io/v1beta1", "Kustomization"): KUSTOMIZATION,
    ("kustomize.config.k8s.io/v1alpha1", "Component"): KUSTOMIZATION,
}

BUILD = {"context!": str, "dockerfile!": str, "args": {"*": str}}
COMPOSE_SERVER = {
    "restart!": "on-failure",
    "read_only!": bool,
    "cap_drop!": ["ALL"],
    "security_opt!": ["no-new-privileges:true"],
    "profiles!": [NAME],
    "image!": str,
    "build!": BUILD,
    "command!": [str],
    "ports!": [r"127\.0\.0\.1:[0-9]+:[0-9]+"],
    "volumes!": [r"[a-z]+:/\S+"],
    "ulimits!": {"nofile!": int},
    "mem_limit!": r"[0-9]+g",
    "pids_limit!": int,
    "stop_grace_period!": r"[0-9]+s",
    "deploy": {
        "resources!": {
            "reservations!": {"devices!": [{"driver!": "nvidia", "count!": "all", "capabilities!": ["gpu"]}]}
        }
    },
}
COMPOSE = {
    "name!": NAME,
    "services!": {
        "cpu!": COMPOSE_SERVER,
        "gpu!": COMPOSE_SERVER,
        "reducectl!": {
            "profiles!": [NAME],
            "image!": str,
            "build!": BUILD,
            "entrypoint!": [str],
            "user!": r"[0-9]+:[0-9]+",
            "network_mode!": "none",
            "mem_limit!": r"[0-9]+g",
            "read_only!": bool,
            "cap_drop!": ["ALL"],
            "security_opt!": ["no-new-privileges:true"],
            "volumes!": [r"[a-z]+:/\S+"],
        },
    },
    "volumes!": {"*": type(None)},
    "x-server": {"*": object},
}


def errors(value, schema, where):
    """What is wrong with a value, a line each."""
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            return [f"{where}: {value!r} isn't a mapping"]
        fields = {name.removesuffix("!"): field for name, field in schema.items()}
        required = {name[:-1] for name in schema if name.endswith("!")}
        found = [f"{where}: no {name}" for name in sorted(required - set(value))]
        for name, field in value.items():
            if name in fields or "*" in fields:
                found += errors(field, fields.get(name, fields.get("*")), f"{where}.{name}")
            else:
                found.append(f"{where}: {name} isn't a field that is known here; known are {', '.join(fields)}")
        return found
    if isinstance(schema, list):
        if not isinstance(value, list):
            return [f"{where}: {value!r} isn't a list"]
        return [error for n, each in enumerate(value) for error in errors(each, schema[0], f"{where}[{n}]")]
    if isinstance(schema, str):
        good = isinstance(value, str) and re.fullmatch(schema, value) is not None
        return [] if good else [f"{where}: {value!r} doesn't match {schema}"]
    good = isinstance(value, schema) and not (schema is int and isinstance(value, bool))
    return [] if good else [f"{where}: {value!r} isn't of type {schema.__name__}"]


def object_errors(value, where):
    """The same for an object of Kubernetes, by its apiVersion and kind."""
    kind = (value.get("apiVersion"), value.get("kind"))
    if kind not in SCHEMAS:
        return [f"{where}: {kind} isn't known here"]
    return errors(value, {"apiVersion!": str, "kind!": str} | SCHEMAS[kind], where)
