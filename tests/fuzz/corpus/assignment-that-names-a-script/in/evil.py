from pathlib import Path

Path("INJECTED").write_text("run")
