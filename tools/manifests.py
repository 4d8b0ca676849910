#!/usr/bin/env python3
"""Checks the manifests in docs/scale: they parse, every `moteseal` command line has only options that the program has, probes
name pages and ports that it serves, images are pinned to the versions that this repository uses, files that are renewed are in
mounted folders, a command in docs/scale.md makes each ConfigMap and Secret, and no secret is in them.

usage: tools/manifests.py [DIR]    (a checkout)

Prints one line for each finding, and exits with 1 if there is any.
"""

import pathlib
import re
import sys

import small_yaml

FOLDER = "docs/scale"
# The page with the commands that make the ConfigMaps and Secrets.
PAGE = "docs/scale.md"
CLI = "crates/cli/src"
# The file and the structure with the arguments of each command that a manifest may run.
COMMANDS = {
    ("cloud", "run"): ("cloud.rs", "Run"),
    ("store", "init"): ("store.rs", "Init"),
    ("stream", "init"): ("stream.rs", "Init"),
}
FLATTENED = ["cloud/stream.rs", "cloud/follow.rs"]
PAGES = ("/healthz", "/readyz")
# The options that name files which are replaced while the process runs.
RENEWED = ("stream-creds", "tls-cert", "tls-key", "tokens")
SECRETS = [
    ("a password in a URL", r"\w+://[^\s/@:]+:[^\s/@]+@"),
    ("a private key", r"-----BEGIN [A-Z ]*PRIVATE KEY"),
    ("a seed of an nkey", r"\bS[AOUN][A-Z2-7]{56}\b"),
]
SECRET_NAME = re.compile(r"(?i)(password|passwd|secret|token|credential|private_?key)")


def structures(text: str) -> dict[str, tuple[dict[str, bool], list[str]]]:
    """Returns, for each structure of arguments, its long options with whether they take a value, and the structures that it
    contains."""
    found = {}
    for name, body in re.findall(r"#\[derive\(Args[^\n]*\n(?:#\[[^\n]*\n)*[^\n]*struct (\w+) \{\n(.*?)\n\}", text, re.DOTALL):
        options, inner = {}, []
        field = r"#\[(arg|command)\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)\]\s*(?:pub(?:\(\w+\))? )?(\w+): ([^\n]+),"
        for kind, arguments, field_name, of in re.findall(field, body):
            long = re.search(r'\blong(?: = "([^"]+)")?', arguments)
            if kind == "command" and "flatten" in arguments:
                inner.append(of.split("::")[-1])
            elif kind == "arg" and long:
                options[long[1] or field_name.replace("_", "-")] = of != "bool"
        found[name] = options, inner
    return found


def options_of(root: pathlib.Path) -> dict[tuple[str, str], dict[str, bool]]:
    """Returns the long options of each command."""
    read = {file: structures((root / CLI / file).read_text(encoding="utf-8"))
            for file in {file for file, _ in COMMANDS.values()} | set(FLATTENED)}
    shared = {name: options for file in FLATTENED for name, (options, _) in read[file].items()}
    result = {}
    for command, (file, name) in COMMANDS.items():
        options, inner = read[file][name]
        result[command] = dict(options)
        for flattened in inner:
            result[command] |= shared[flattened]
    return result


def wrong_command(line: list[str], options: dict) -> list[str]:
    """Returns what is wrong with a command line of moteseal."""
    if line == ["--help"]:
        return []
    command = tuple(line[:2])
    if command not in options:
        return [f"{' '.join(map(str, command))} is not a known command"]
    found = []
    for argument in line[2:]:
        match = re.fullmatch(r"--([a-z-]+)(=.+)?", argument)
        if not match:
            found.append(f"{argument} is not written as --NAME or --NAME=VALUE")
        elif match[1] not in options[command]:
            found.append(f"{' '.join(command)} has no option --{match[1]}")
        elif options[command][match[1]] != bool(match[2]):
            found.append(f"--{match[1]} {'needs a value' if options[command][match[1]] else 'takes no value'}")
        elif match[1] == "store" and "@" in match[2]:
            found.append(f"{argument} names a user, but a renewed user has another name; let MOTESEAL_CASSANDRA_USER_FILE name its file")
    return found


def unseen(line: list[str], variables: dict, folders: list[str]) -> list[str]:
    """Returns a finding for each file that is renewed and is not in a mounted folder. A container does not see that a single
    file which is mounted was replaced."""
    files = {f"--{option}": part.partition("=")[2] for option in RENEWED for part in line if part.startswith(f"--{option}=")}
    files |= {name: value for name, value in variables.items() if name.endswith("_FILE")}
    return [f"{name} names {file}, which is not in a mounted folder" for name, file in files.items()
            if not any(file.startswith(f"{folder}/") for folder in folders)]


def versions(root: pathlib.Path) -> dict[str, str]:
    """Returns the version of each image that the repository determines."""
    def read(file: str, pattern: str) -> str:
        return re.search(pattern, (root / file).read_text(encoding="utf-8"), re.MULTILINE)[1]
    return {
        "nats": read("tools/engines/nats.sh", r"^nats_version=(.+)$"),
        "cassandra": read("tools/engines/cassandra/pom.xml", r"<artifactId>cassandra-all</artifactId>\s*<version>(.+)</version>"),
        "moteseal": read("Cargo.toml", r'^version = "(.+)"$'),
        "moteseal-operator": read("Cargo.toml", r'^version = "(.+)"$'),
        "rust": read("rust-toolchain.toml", r'^channel = "(.+)"$'),
    }


def wrong_image(image: str, wanted: dict[str, str]) -> str | None:
    """Returns what is wrong with the name of an image, or None."""
    name, _, tag = image.partition("@")[0].rpartition(":")
    match = re.match(r"\d+\.\d+\.\d+", tag)
    if not match:
        return f"the image {image} is not pinned to a version"
    expected = wanted.get(name.rpartition("/")[2], match[0])
    return None if match[0] == expected else f"the image {image} is not version {expected}"


def walk(value, path=()):
    """Yields every scalar of a document with the keys that lead to it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from walk(inner, (*path, key))
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner, path)
    else:
        yield path, value


def compose_findings(document: dict, options: dict) -> list[str]:
    """Returns the findings that need the structure of a Compose file."""
    found = []
    used = {"configs": set(), "secrets": set()}
    for name, service in document["services"].items():
        line = service.get("command", [])
        check = service.get("healthcheck", {}).get("test", [])
        urls = [re.fullmatch(r"(https?)://127\.0\.0\.1:(\d+)(/[^?]*)(\?.*)?", part) for part in check if "://" in part]
        if service["image"].startswith("moteseal:"):
            found += [f"{name}: {what}" for what in wrong_command(line, options)]
            folders = [volume.split(":")[1] for volume in service.get("volumes", []) if volume.startswith("./")]
            found += [f"{name}: {what}" for what in unseen(line, service.get("environment", {}), folders)]
            if line[:2] == ["cloud", "run"]:
                scheme = "https" if any(part.startswith("--tls-cert=") for part in line) else "http"
                port = next((part.rpartition(":")[2] for part in line if part.startswith("--listen=")), None)
                if not urls:
                    found.append(f"{name}: it has no health check")
                for url in urls:
                    if not url or (url[1], url[2]) != (scheme, port) or url[3] not in PAGES:
                        found.append(f"{name}: the health check does not read {scheme}://127.0.0.1:{port}/healthz or /readyz")
        for kind, names in used.items():
            for entry in service.get(kind, []):
                names.add(entry if isinstance(entry, str) else entry["source"])
        for other in service.get("depends_on", {}):
            if other not in document["services"]:
                found.append(f"{name}: it depends on {other}, which does not exist")
        for volume in service.get("volumes", []):
            if volume.startswith("./"):
                # An operator's commands write into the folder of the policy.
                if not volume.endswith(":ro") and not service.get("profiles"):
                    found.append(f"{name}: the folder {volume.split(':')[0]} is not mounted read-only")
            elif volume.split(":")[0] not in document["volumes"]:
                found.append(f"{name}: the volume {volume.split(':')[0]} is not declared")
        limits = service.get("deploy", {}).get("resources", {}).get("limits", {})
        if service.get("restart") == "unless-stopped" and not {"cpus", "memory"} <= set(limits):
            found.append(f"{name}: it has no limits of processors and memory")
    for kind, names in used.items():
        declared = document.get(kind, {})
        found += [f"{kind}: {name} is used but not declared" for name in sorted(names - set(declared))]
        found += [f"{kind}: {name} is declared but not used" for name in sorted(set(declared) - names)]
        found += [f"{kind}: {name} is not a file" for name, entry in declared.items() if set(entry) != {"file"}]
    return found


def pod_of(document: dict) -> dict:
    """Returns the specification of the pods of an object, or nothing if it has none."""
    spec = document.get("spec", {}) if "kind" in document else {}
    return spec if document.get("kind") == "Pod" else spec.get("template", {}).get("spec", {})


def labels(documents: list[dict]) -> set[str]:
    """Returns the labels `app` of the pods."""
    pods = [document if document.get("kind") == "Pod" else document["spec"]["template"]
            for document in documents if pod_of(document)]
    return {pod["metadata"]["labels"]["app"] for pod in pods}


def made_objects(page: str) -> dict[tuple[str, str], set[str]]:
    """Returns the ConfigMaps and Secrets that the commands of a page make, with the keys in them."""
    def repeated(match: re.Match) -> str:
        return "\n".join(match[3].replace(f"${match[1]}", word) for word in match[2].split())
    page = re.sub(r"for (\w+) in ([^;\n]+); do\n(.*?)\n *done", repeated, page, flags=re.DOTALL)
    made = {}
    for kind, name, files in re.findall(r"\bcreate (configmap|secret generic) (\S+)(.*)", page):
        keys = {part.partition("=")[0].rpartition("/")[2] for part in re.findall(r"--from-file=(\S+)", files)}
        made.setdefault(("ConfigMap" if kind == "configmap" else "Secret", name), set()).update(keys)
    return made


def unmade(document: dict, made: dict[tuple[str, str], set[str]]) -> list[str]:
    """Returns the ConfigMaps and Secrets of an object, and the files in them, that no command makes."""
    name, pod, found = f"{document['kind']} {document['metadata']['name']}", pod_of(document), []
    for volume in pod.get("volumes", []):
        secret, config = volume.get("secret"), volume.get("configMap")
        if not secret and not config:
            continue
        key = ("Secret", secret["secretName"]) if secret else ("ConfigMap", config["name"])
        if key not in made:
            found.append(f"{name}: no command in {PAGE} makes the {key[0]} {key[1]}")
            continue
        for container in pod["containers"]:
            texts = [str(value) for part in ("args", "env") for _, value in walk(container.get(part, []))]
            for mount in (mount for mount in container.get("volumeMounts", []) if mount["name"] == volume["name"]):
                files = {mount["subPath"]} if "subPath" in mount else {
                    file for text in texts for file in re.findall(re.escape(mount["mountPath"]) + r"/([\w.-]+)(?![\w./-])", text)}
                found += [f"{name}: no command in {PAGE} puts {file} into the {key[0]} {key[1]}" for file in sorted(files - made[key])]
    return found


def kubernetes_findings(documents: list[dict], options: dict, apps: set[str]) -> list[str]:
    """Returns the findings that need the structure of Kubernetes' objects. `apps` are the labels of the pods in all files."""
    found = []
    for document in documents:
        name = f"{document['kind']} {document['metadata']['name']}"
        if document["kind"] == "Secret":
            found.append(f"{name}: secrets are made by the operator, not by a manifest")
        for path, value in walk(document):
            if path[-2:] in (("matchLabels", "app"), ("selector", "app")) and value not in apps:
                found.append(f"{name}: no pod has the label app: {value}")
            if path[-2:] == ("matchExpressions", "values") and value not in apps:
                found.append(f"{name}: no pod has the label app: {value}")
        pod = pod_of(document)
        if not pod:
            continue
        claims = [claim["metadata"]["name"] for claim in document["spec"].get("volumeClaimTemplates", [])]
        volumes = {volume["name"] for volume in pod.get("volumes", [])} | set(claims)
        for container in pod["containers"]:
            mounts = {mount["name"] for mount in container.get("volumeMounts", [])}
            if mounts != volumes:
                found.append(f"{name}: the volumes {', '.join(sorted(mounts ^ volumes))} are not both declared and mounted")
            if not container.get("resources", {}).get("limits", {}).get("memory"):
                found.append(f"{name}: it has no limit of memory")
            ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
            probes = [probe for key, probe in container.items() if key.endswith("Probe")]
            for probe in probes:
                port = probe.get("httpGet", probe.get("tcpSocket", {})).get("port")
                if port not in ports:
                    found.append(f"{name}: a probe uses the port {port}, which is not declared")
            line = container.get("args", [])
            folders = [mount["mountPath"] for mount in container.get("volumeMounts", []) if "subPath" not in mount]
            variables = {variable["name"]: variable.get("value", "") for variable in container.get("env", [])}
            found += [f"{name}: {what}" for what in unseen(line, variables, folders)]
            if not container["image"].startswith("moteseal:"):
                continue
            found += [f"{name}: {what}" for what in wrong_command(line, options)]
            if line[:2] != ["cloud", "run"]:
                continue
            scheme = "HTTPS" if any(part.startswith("--tls-cert=") for part in line) else "HTTP"
            if len(probes) != 3:
                found.append(f"{name}: it needs a startup, a liveness and a readiness probe")
            for get in (probe["httpGet"] for probe in probes):
                if get["path"] not in PAGES or get.get("scheme", "HTTP") != scheme:
                    found.append(f"{name}: a probe does not read /healthz or /readyz by {scheme}")
            if not any(part == f"--listen=0.0.0.0:{port}" for part in line for port in ports.values()):
                found.append(f"{name}: the program does not listen on the declared port")
    return found


def findings(root: pathlib.Path) -> tuple[list[str], int]:
    """Returns one line for each finding, and the number of documents."""
    options, wanted = options_of(root), versions(root)
    found, read = [], {}
    for path in sorted((root / FOLDER).iterdir()):
        if not path.is_file():
            continue
        text, place = path.read_text(encoding="utf-8"), path.relative_to(root).as_posix()
        found += [f"{place}: {what}" for what, pattern in SECRETS if re.search(pattern, text)]
        if path.name == "Dockerfile":
            for image in re.findall(r"^FROM (\S+)", text, re.MULTILINE):
                problem = None if image == "scratch" else wrong_image(image, wanted)
                found += [f"{place}: {problem}"] if problem else []
        if path.suffix != ".yaml":
            continue
        try:
            read[place] = small_yaml.documents(text)
        except small_yaml.YamlError as error:
            found.append(f"{place}: {error}")
    apps = set().union(*map(labels, read.values()))
    made = made_objects((root / PAGE).read_text(encoding="utf-8"))
    for place, documents in read.items():
        problems = []
        for document in documents:
            for keys, value in walk(document):
                if keys[-1:] == ("image",):
                    problems.append(wrong_image(str(value), wanted))
                if "environment" in keys and SECRET_NAME.search(keys[-1]) and not keys[-1].endswith("_FILE"):
                    problems.append(f"the variable {keys[-1]} has a secret; name a file")
            for variable in environment(document):
                if SECRET_NAME.search(variable["name"]) and not variable["name"].endswith("_FILE"):
                    problems.append(f"the variable {variable['name']} has a secret; name a file")
        if "services" in documents[0]:
            problems += compose_findings(documents[0], options)
        elif "kind" in documents[0]:
            problems += kubernetes_findings(documents, options, apps)
            problems += [problem for document in documents for problem in unmade(document, made)]
        found += [f"{place}: {problem}" for problem in dict.fromkeys(problems) if problem]
    return found, sum(map(len, read.values()))


def environment(document: dict) -> list[dict]:
    """Returns the variables of the environment in an object of Kubernetes."""
    return [variable for container in pod_of(document).get("containers", []) for variable in container.get("env", [])]


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    found, count = findings(root)
    print("\n".join(found) if found else f"manifests: {count} documents, no findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
