"""A kernel provisioner for Jupyter: kernels run in sandboxes, without a network.

A kernelspec says so in its metadata; `options` are the keywords of `stockade.Sandbox`:

    "metadata": {"kernel_provisioner": {"provisioner_name": "stockade", "config": {"options": {"memory": "1G"}}}}

The kernel's sockets are Unix sockets in a directory that only its sandbox and the client see.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any, Dict, List, Optional

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase
from traitlets import Dict as DictTrait

from stockade.aio import in_thread
from stockade.commands import CommandHandle
from stockade.sandbox import Sandbox


class SandboxProvisioner(KernelProvisionerBase):
    """Starts a kernel in a sandbox of its own."""

    options = DictTrait(config=True, help='keywords of stockade.Sandbox; "{cwd}" in a string is the directory of the notebook')

    _sandbox: Optional[Sandbox] = None
    _kernel: Optional[CommandHandle] = None
    _place: Optional[str] = None

    async def pre_launch(self, **kwargs: Any) -> Dict[str, Any]:
        """Makes the directory of the sockets, and lets the kernel's manager use it."""
        if self._place is None:
            # A socket's path has at most 107 bytes.
            self._place = tempfile.mkdtemp(prefix="stockade-k-")
        manager = self.parent
        command: List[str] = list(self.kernel_spec.argv)
        if manager is not None:
            if manager.transport != "ipc":
                manager.transport, manager.ip = "ipc", os.path.join(self._place, "s")
                manager.connection_file = os.path.join(self._place, "connection.json")
            manager.write_connection_file()
            self.connection_info = manager.get_connection_info()
            command = manager.format_kernel_cmd(extra_arguments=kwargs.pop("extra_arguments", []))
        return await super().pre_launch(cmd=command, **kwargs)

    async def launch_kernel(self, cmd: List[str], **kwargs: Any) -> KernelConnectionInfo:
        """Starts the sandbox and the kernel in it. Of the environment it gets what the kernelspec names."""
        place, cwd = self._place, kwargs.get("cwd") or os.getcwd()
        assert place is not None
        options = {name: _filled(value, str(cwd)) for name, value in self.options.items()}
        given = options.pop("volumes", [])
        volumes = [given] if isinstance(given, str) else list(given)
        env = {name: str(value) for name, value in (self.kernel_spec.env or {}).items()}

        def start() -> CommandHandle:
            if self._sandbox is None:
                self._sandbox = Sandbox(volumes=[*volumes, f"{place}:{place}"], **options)
            return self._sandbox.commands.run(cmd, background=True, envs=env, check=False)

        self._kernel = await in_thread(start)
        return self.connection_info

    @property
    def has_process(self) -> bool:
        """Whether a kernel was started and not cleaned up."""
        return self._kernel is not None

    async def poll(self) -> Optional[int]:
        """The exit code; `None` while it runs."""
        if self._kernel is None:
            return 0
        if self._kernel.exit_code is None and self._kernel.is_over:
            return 125  # its sandbox is gone
        return self._kernel.exit_code

    async def wait(self) -> Optional[int]:
        """Waits for the end of the kernel."""
        kernel, self._kernel = self._kernel, None
        return None if kernel is None else await in_thread(lambda: kernel.wait().exit_code)

    async def send_signal(self, signum: int) -> None:
        """Sends a signal to the kernel."""
        kernel = self._kernel
        if kernel is not None and signum:
            await in_thread(lambda: kernel.signal(signum))

    async def kill(self, restart: bool = False) -> None:
        """Kills the kernel with everything that it started."""
        if self._kernel is not None:
            await in_thread(self._kernel.kill)

    async def terminate(self, restart: bool = False) -> None:
        """Asks the kernel to end."""
        await self.send_signal(15)

    async def cleanup(self, restart: bool = False) -> None:
        """Ends the sandbox, and removes its directory. A kernel that is restarted stays in its sandbox."""
        if restart:
            return
        sandbox, place = self._sandbox, self._place
        self._sandbox = self._place = None
        if sandbox is not None:
            await in_thread(sandbox.kill)
        if place is not None:
            shutil.rmtree(place, ignore_errors=True)


def _filled(value: Any, cwd: str) -> Any:
    if isinstance(value, str):
        return value.replace("{cwd}", cwd)
    return [_filled(one, cwd) for one in value] if isinstance(value, list) else value
