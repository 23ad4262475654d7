"""Where completion is installed for each shell, and that installing it twice changes nothing."""

from pathlib import Path

import pytest

from testbed.base.errors import TestbedError
from testbed.cli.app import app
from testbed.cli.completion import completion_script, install_completion


@pytest.mark.process  # click asks bash for its version
@pytest.mark.parametrize(
    ("shell", "script", "settings"),
    [
        ("bash", ".bash_completions/testbed.sh", ".bashrc"),
        ("zsh", ".zfunc/_testbed", ".zshrc"),
        ("fish", ".config/fish/completions/testbed.fish", None),
    ],
)
def test_the_script_lies_where_the_shell_reads_it(
    shell: str, script: str, settings: str | None, tmp_path: Path
) -> None:
    if settings is not None:
        (tmp_path / settings).write_text("own=1")
    assert install_completion(app, shell, tmp_path) == tmp_path / script
    assert f"_TESTBED_COMPLETE={shell}_complete" in (tmp_path / script).read_text()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    install_completion(app, shell, tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    if settings is not None:
        assert (tmp_path / settings).read_text().startswith("own=1\n")


def test_a_shell_that_click_does_not_know_is_refused() -> None:
    with pytest.raises(TestbedError, match="no completion for the shell tcsh"):
        completion_script(app, "tcsh")
