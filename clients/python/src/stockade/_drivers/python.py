"""The Python that stays in a sandbox. It runs inside; what it says is not trusted outside.

Descriptor 0 is a socket. A request is a line of JSON, and so is every answer. Standard output and error are the code's own.
"""


def _main():
    import ast
    import asyncio
    import base64
    import builtins
    import contextlib
    import inspect
    import json
    import linecache
    import os
    import sys
    import traceback
    import types
    import warnings

    channel = os.dup(0)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    sys.argv, sys.path[:0] = [""], [""]
    loop = None
    count = 0
    formats = {
        "html": ("_repr_html_", "text/html"),
        "markdown": ("_repr_markdown_", "text/markdown"),
        "svg": ("_repr_svg_", "image/svg+xml"),
        "png": ("_repr_png_", "image/png"),
        "jpeg": ("_repr_jpeg_", "image/jpeg"),
        "pdf": ("_repr_pdf_", "application/pdf"),
        "latex": ("_repr_latex_", "text/latex"),
        "json": ("_repr_json_", "application/json"),
        "javascript": ("_repr_javascript_", "application/javascript"),
    }

    def encoded(answer):
        return (json.dumps(answer, default=repr) + "\n").encode()

    def say(*lines):
        data = b"".join(lines)
        while data:
            data = data[os.write(channel, data) :]

    def described(value):
        """A value in every format that it offers."""
        found = {}
        bundle = getattr(type(value), "_repr_mimebundle_", None)
        if bundle is not None:
            try:
                offered = value._repr_mimebundle_()
                offered = offered[0] if isinstance(offered, tuple) else offered
                for name, (_, kind) in formats.items():
                    if kind in (offered or {}):
                        found[name] = offered[kind]
            except Exception:
                pass
        for name, (method, _) in formats.items():
            if name not in found and callable(getattr(type(value), method, None)):
                try:
                    shown = getattr(value, method)()
                except Exception:
                    continue
                shown = shown[0] if isinstance(shown, tuple) else shown
                if shown is not None:
                    found[name] = shown
        for name, shown in found.items():
            if isinstance(shown, bytes):
                found[name] = base64.b64encode(shown).decode()
        found["text"] = repr(value)
        return found

    def display(*values):
        for value in values:
            say(encoded({"result": described(value)}))

    def figures(shown):
        """The open figures of matplotlib, as pictures. They come after what is shown already."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None:
            return
        import io

        if pyplot.get_fignums():
            say(*shown)
            shown.clear()
        for number in pyplot.get_fignums():
            figure, picture = pyplot.figure(number), io.BytesIO()
            figure.savefig(picture, format="png", bbox_inches="tight")
            say(encoded({"result": {"png": base64.b64encode(picture.getvalue()).decode(), "text": repr(figure)}}))
        pyplot.close("all")

    def evaluate(code, scope):
        nonlocal loop
        value = eval(code, scope)
        if code.co_flags & inspect.CO_COROUTINE:
            loop = loop or asyncio.new_event_loop()
            value = loop.run_until_complete(value)
        return value

    def execute(source, name, shown):
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        tree = ast.parse(source, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        if tree.body:
            evaluate(compile(tree, name, "exec", flags), main.__dict__)
        if last is not None:
            value = evaluate(compile(ast.Expression(last.value), name, "eval", flags), main.__dict__)
            if value is not None:
                builtins._ = value
                shown.append(encoded({"result": described(value), "main": True}))

    def failure(error, name):
        """Without the frames of this program."""
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != name:
            trace = trace.tb_next
        text = "".join(traceback.format_exception(type(error), error, trace))
        return {"name": type(error).__name__, "value": str(error), "traceback": text}

    def answer(request):
        nonlocal count
        count += 1
        name = f"<cell {count}>"
        before = {key: os.environ.get(key) for key in request.get("env") or {}}
        os.environ.update(request.get("env") or {})
        error, shown = None, []
        try:
            execute(request["code"], name, shown)
            figures(shown)
        except BaseException as raised:
            try:
                error = failure(raised, name)
            except BaseException:
                error = {"name": type(raised).__name__, "value": "", "traceback": ""}
        for key, value in before.items():
            os.environ.pop(key, None) if value is None else os.environ.__setitem__(key, value)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        # In one piece, so that the other side wakes up once.
        say(*shown, encoded({"done": request["id"], "error": error, "count": count}))

    builtins.display = display
    os.environ.setdefault("MPLBACKEND", "Agg")
    warnings.filterwarnings("ignore", message=".*FigureCanvasAgg is non-interactive.*")
    sys.stdout.reconfigure(line_buffering=True)
    say(encoded({"ready": 1}))
    rest = b""
    while True:
        try:
            while b"\n" not in rest:
                piece = os.read(channel, 1 << 16)
                if not piece:
                    return
                rest += piece
            line, rest = rest.split(b"\n", 1)
            answer(json.loads(line))
        except KeyboardInterrupt:
            pass  # it came between two pieces of code


_main()
