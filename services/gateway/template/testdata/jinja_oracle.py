"""Renders templates with Python's jinja2, the way chat templates are rendered by their authors.

Reads one JSON object a line: {"template": ..., "variables": {...}, "now": seconds}.
Writes one JSON object a line: {"text": ...} or {"error": ..., "raised": bool}.
"""

import datetime
import json
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox


class Raised(Exception):
    pass


class Generation(jinja2.ext.Extension):
    """{% generation %}: marks the model's own words for training; renders its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def raise_exception(message):
    raise Raised(str(message))


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def render(request):
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    now = datetime.datetime.fromtimestamp(request.get("now", 0), datetime.timezone.utc)
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = now.strftime
    return environment.from_string(request["template"]).render(**request["variables"])


def main():
    for line in sys.stdin:
        try:
            answer = {"text": render(json.loads(line))}
            json.dumps(answer, ensure_ascii=False).encode()
        except Raised as error:
            answer = {"error": str(error), "raised": True}
        except Exception as error:  # whatever a template can provoke is an answer
            answer = {"error": f"{type(error).__name__}: {error}", "raised": False}
        sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
