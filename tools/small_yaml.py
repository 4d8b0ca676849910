"""Reads the part of YAML that the manifests in docs/scale use, so that lints need no package.

Block and flow mappings and sequences, plain and double-quoted scalars, literal blocks (`|`), comments, anchors, aliases and
merges (`<<`). A flow collection is on one line. Anything else, a key that is repeated, and a scalar that not
every reader of YAML reads in the same way (0440, yes, 1.0), is an error with its line.
"""

import json
import re

KEY = re.compile(r"""(?P<key>"[^"]*"|[\w<$./~-][^\s:"#{}\[\],]*):(?:\s+(?P<rest>.*)|$)""")


class YamlError(ValueError):
    """Text that is not in this part of YAML."""


def documents(text: str) -> list:
    """Returns the documents of a text."""
    found, lines = [], []
    for number, line in enumerate([*text.splitlines(), "---"], 1):
        if line.rstrip() == "---":
            reader = _Reader(lines)
            if reader.skip():
                found.append(reader.block(0))
                if reader.skip():
                    reader.fail("the indentation is wrong")
            lines = []
        else:
            lines.append((number, line))
    return found


class _Reader:
    def __init__(self, lines: list[tuple[int, str]]):
        self.lines, self.at, self.anchors = lines, 0, {}

    def scalar(self, text: str):
        """Returns the value of a scalar."""
        if text.startswith('"'):
            try:
                return json.loads(text)
            except ValueError:
                self.fail(f"{text} is not a quoted text")
        if re.match(r"- |[?'>!%@`|&*]", text) or ": " in text:
            self.fail(f"{text!r} is not in the part of YAML that the manifests use")
        # Readers of YAML disagree on these.
        if re.fullmatch(r"[+-]?0\w+|[+-]?\d*\.\d*|(?i:yes|no|on|off|y|n)", text):
            self.fail(f"put {text} in double quotes, or write a decimal number")
        if text in ("true", "false"):
            return text == "true"
        if text in ("", "null", "~"):
            return None
        return int(text) if re.fullmatch(r"-?\d+", text) else text

    def fail(self, what: str):
        number = self.lines[min(self.at, len(self.lines) - 1)][0]
        raise YamlError(f"line {number}: {what}")

    def skip(self) -> bool:
        """Goes to the next line that is neither empty nor a comment. Returns whether there is one."""
        while self.at < len(self.lines) and re.fullmatch(r"\s*(#.*)?", self.lines[self.at][1]):
            self.at += 1
        return self.at < len(self.lines)

    def line(self) -> tuple[int, str]:
        """Returns the indentation and the text of the line, without a comment."""
        text = self.lines[self.at][1]
        if "\t" in text:
            self.fail("a tab")
        match = re.match(r"""( *)((?:[^\s"#]|"(?:[^"\\]|\\.)*"|(?<=\S)#|\s+(?!#|\s|$))*)\s*(#.*)?$""", text)
        if not match:
            self.fail("a quotation mark is missing")
        return len(match[1]), match[2].rstrip()

    def block(self, least: int):
        """Reads a mapping or a sequence that is indented by `least` or more."""
        indent, text = self.line()
        if indent < least:
            return None
        value = [] if text.startswith("- ") or text == "-" else {}
        merged = {}
        while self.skip():
            here, text = self.line()
            if here < indent:
                break
            if here > indent:
                self.fail("the indentation is wrong")
            if isinstance(value, list):
                if not text.startswith("- "):
                    break
                value.append(self.item(indent, text))
                continue
            match = KEY.fullmatch(text)
            if not match:
                self.fail(f"{text!r} is not a key and its value")
            key = match["key"].strip('"')
            if key in value or (key == "<<" and merged):
                self.fail(f"the key {key} is repeated")
            read = self.value(match["rest"] or "", indent)
            if key == "<<":
                merged = read
            else:
                value[key] = read
        return {**merged, **value} if merged else value

    def item(self, indent: int, text: str):
        """Reads an item of a sequence, whose text begins with a hyphen."""
        inner = text[2:].lstrip()
        if not KEY.fullmatch(inner) or inner[0] in '{["':
            return self.value(inner, indent)
        # A mapping: its first key is on the line of the hyphen.
        number, line = self.lines[self.at]
        self.lines[self.at] = (number, " " * (len(line) - len(line.lstrip(" -"))) + line.lstrip(" -"))
        return self.block(indent + 1)

    def value(self, text: str, indent: int):
        """Reads the value after a key or a hyphen. Ends after its last line."""
        match = re.fullmatch(r"&(\S+)\s*(.*)", text)
        if match:
            self.anchors[match[1]] = self.value(match[2], indent)
            return self.anchors[match[1]]
        if text.startswith("*"):
            if text[1:] not in self.anchors:
                self.fail(f"there is no anchor {text[1:]}")
            self.at += 1
            return self.anchors[text[1:]]
        if text == "|":
            return self.literal(indent)
        if text == "":
            self.at += 1
            if not self.skip():
                return None
            here, next_text = self.line()
            return self.block(here) if here > indent or (here == indent and next_text.startswith("- ")) else None
        if text[0] in "{[":
            value, rest = self.flow(text)
            if rest:
                self.fail(f"{rest!r} follows a collection")
        else:
            value = self.scalar(text)
        self.at += 1
        return value

    def literal(self, indent: int) -> str:
        self.at += 1
        lines = []
        while self.at < len(self.lines):
            line = self.lines[self.at][1]
            if line.strip() and len(line) - len(line.lstrip(" ")) <= indent:
                break
            lines.append(line)
            self.at += 1
        margin = min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), default=0)
        return "\n".join(line[margin:] for line in lines).rstrip("\n") + "\n"

    def flow(self, text: str):
        """Reads a collection in brackets. Returns it and the rest of the text."""
        is_list, rest = text[0] == "[", text[1:].lstrip()
        end, value, merged = "]" if is_list else "}", [] if is_list else {}, {}
        while not rest.startswith(end):
            key = None
            if not is_list:
                match = re.match(r"""("[^"]*"|[^\s:"{}\[\],]+):\s+""", rest)
                if not match:
                    self.fail(f"{rest!r} is not a key and its value")
                key, rest = match[1].strip('"'), rest[match.end():]
            if rest[:1] in ("{", "["):
                inner, rest = self.flow(rest)
            else:
                match = re.match(r"""("(?:[^"\\]|\\.)*"|[^,{}\[\]"]+)""", rest)
                if not match:
                    self.fail(f"{rest!r} is not a value")
                word, rest = match[1].strip(), rest[match.end():]
                inner = self.anchors[word[1:]] if word[1:] in self.anchors and word[0] == "*" else self.scalar(word)
            if is_list:
                value.append(inner)
            elif key in value:
                self.fail(f"the key {key} is repeated")
            elif key == "<<":
                merged = inner
            else:
                value[key] = inner
            rest = rest.lstrip()
            if rest.startswith(","):
                rest = rest[1:].lstrip()
            elif not rest.startswith(end):
                self.fail(f"{end} is missing")
        return ({**merged, **value} if merged else value), rest[1:].lstrip()
