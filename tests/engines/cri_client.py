"""The part of a Container Runtime Interface client that the scenarios need.

Debian has no crictl in this release, and generated code would need the whole definition. The table below has the fields that
the scenarios use; messages are dictionaries, and go through Debian's python3-grpcio."""

# A message on each line, and its fields: name=number, then the kind: nothing for a whole number (also bool and enum), s for a
# text, b for bytes, m for a map of texts, or another message. A star is a list.
TABLE = """
VersionResponse runtime_name=2:s runtime_version=3:s
StatusRequest verbose=1
StatusResponse status=1:RuntimeStatus runtime_handlers=3:RuntimeHandler*
RuntimeStatus conditions=1:RuntimeCondition*
RuntimeCondition type=1:s status=2 reason=3:s message=4:s
RuntimeHandler name=1:s features=2:RuntimeHandlerFeatures
RuntimeHandlerFeatures recursive_read_only_mounts=1 user_namespaces=2
Number value=1
IDMapping host_id=1 container_id=2 length=3
UserNamespace mode=1 uids=2:IDMapping* gids=3:IDMapping*
NamespaceOption network=1 pid=2 ipc=3 target_id=4:s userns_options=5:UserNamespace
SecurityProfile profile_type=1 localhost_ref=2:s
Capability add_capabilities=1:s* drop_capabilities=2:s*
HugepageLimit page_size=1:s limit=2
LinuxContainerResources cpu_period=1 cpu_quota=2 cpu_shares=3 memory_limit_in_bytes=4 oom_score_adj=5 cpuset_cpus=6:s \
 hugepage_limits=8:HugepageLimit* unified=9:m memory_swap_limit_in_bytes=10
LinuxSandboxSecurityContext namespace_options=1:NamespaceOption run_as_user=3:Number readonly_rootfs=4 supplemental_groups=5* \
 privileged=6 run_as_group=8:Number seccomp=9:SecurityProfile
LinuxPodSandboxConfig cgroup_parent=1:s security_context=2:LinuxSandboxSecurityContext sysctls=3:m \
 overhead=4:LinuxContainerResources resources=5:LinuxContainerResources
PodSandboxMetadata name=1:s uid=2:s namespace=3:s attempt=4
DNSConfig servers=1:s* searches=2:s* options=3:s*
PodSandboxConfig metadata=1:PodSandboxMetadata hostname=2:s log_directory=3:s dns_config=4:DNSConfig labels=6:m annotations=7:m \
 linux=8:LinuxPodSandboxConfig
RunPodSandboxRequest config=1:PodSandboxConfig runtime_handler=2:s
RunPodSandboxResponse pod_sandbox_id=1:s
StopPodSandboxRequest pod_sandbox_id=1:s
RemovePodSandboxRequest pod_sandbox_id=1:s
PodSandboxStatusRequest pod_sandbox_id=1:s verbose=2
PodSandboxStatusResponse status=1:PodSandboxStatus info=2:m
PodSandboxStatus id=1:s metadata=2:PodSandboxMetadata state=3 network=5:PodSandboxNetworkStatus labels=7:m annotations=8:m \
 runtime_handler=9:s
PodSandboxNetworkStatus ip=1:s
ListPodSandboxResponse pods=1:PodSandbox*
PodSandbox id=1:s metadata=2:PodSandboxMetadata state=3 runtime_handler=7:s
ImageSpec image=1:s user_specified_image=18:s
KeyValue key=1:s value=2:s
Mount container_path=1:s host_path=2:s readonly=3 propagation=5 recursive_read_only=8
Device container_path=1:s host_path=2:s permissions=3:s
ContainerMetadata name=1:s attempt=2
LinuxContainerSecurityContext capabilities=1:Capability privileged=2 namespace_options=3:NamespaceOption run_as_user=5:Number \
 run_as_username=6:s readonly_rootfs=7 supplemental_groups=8* no_new_privs=11 run_as_group=12:Number masked_paths=13:s* \
 readonly_paths=14:s* seccomp=15:SecurityProfile
LinuxContainerConfig resources=1:LinuxContainerResources security_context=2:LinuxContainerSecurityContext
ContainerConfig metadata=1:ContainerMetadata image=2:ImageSpec command=3:s* args=4:s* working_dir=5:s envs=6:KeyValue* mounts=7:Mount* \
 devices=8:Device* labels=9:m annotations=10:m log_path=11:s stdin=12 stdin_once=13 tty=14 linux=15:LinuxContainerConfig
CreateContainerRequest pod_sandbox_id=1:s config=2:ContainerConfig sandbox_config=3:PodSandboxConfig
CreateContainerResponse container_id=1:s
StartContainerRequest container_id=1:s
StopContainerRequest container_id=1:s timeout=2
RemoveContainerRequest container_id=1:s
ListContainersRequest filter=1:ContainerFilter
ContainerFilter id=1:s pod_sandbox_id=3:s
ListContainersResponse containers=1:Container*
Container id=1:s pod_sandbox_id=2:s metadata=3:ContainerMetadata state=6
ContainerStatusRequest container_id=1:s verbose=2
ContainerStatusResponse status=1:ContainerStatus info=2:m
ContainerStatus id=1:s metadata=2:ContainerMetadata state=3 created_at=4 started_at=5 finished_at=6 exit_code=7 reason=10:s \
 message=11:s annotations=13:m log_path=15:s
UpdateContainerResourcesRequest container_id=1:s linux=2:LinuxContainerResources
ReopenContainerLogRequest container_id=1:s
ExecSyncRequest container_id=1:s cmd=2:s* timeout=3
ExecSyncResponse stdout=1:b stderr=2:b exit_code=3
ExecRequest container_id=1:s cmd=2:s* tty=3 stdin=4 stdout=5 stderr=6
ExecResponse url=1:s
AttachRequest container_id=1:s stdin=2 tty=3 stdout=4 stderr=5
AttachResponse url=1:s
PortForwardRequest pod_sandbox_id=1:s port=2*
PortForwardResponse url=1:s
ImageStatusRequest image=1:ImageSpec
ImageStatusResponse image=1:Image
Image id=1:s repo_tags=2:s* size=4 uid=5:Number username=6:s
ImageFsInfoResponse image_filesystems=1:FilesystemUsage*
FilesystemUsage timestamp=1 used_bytes=3:Number
ContainerStatsRequest container_id=1:s
ContainerStatsResponse stats=1:ContainerStats
ListContainerStatsResponse stats=1:ContainerStats*
ContainerStats attributes=1:ContainerAttributes cpu=2:CpuUsage memory=3:MemoryUsage writable_layer=4:FilesystemUsage
ContainerAttributes id=1:s metadata=2:ContainerMetadata
CpuUsage timestamp=1 usage_core_nano_seconds=2:Number
MemoryUsage timestamp=1 working_set_bytes=2:Number usage_bytes=4:Number
PodSandboxStatsRequest pod_sandbox_id=1:s
PodSandboxStatsResponse stats=1:PodSandboxStats
PodSandboxStats linux=2:LinuxPodSandboxStats
LinuxPodSandboxStats cpu=1:CpuUsage memory=2:MemoryUsage process=4:ProcessUsage containers=5:ContainerStats*
ProcessUsage process_count=2:Number
"""


def fields_of(line):
    """The fields of a message of the table: name: (number, kind, whether it is a list)."""
    found = {}
    for word in line.split()[1:]:
        name, _, rest = word.partition("=")
        number, _, kind = rest.rstrip("*").partition(":")
        found[name] = int(number), kind, rest.endswith("*")
    return found


MESSAGES = {line.split()[0]: fields_of(line) for line in TABLE.replace("\\\n", "").strip().splitlines()}
PAIR = {"key": (1, "s", False), "value": (2, "s", False)}


class Message(dict):
    """A message. A field that was not sent has its default value."""

    def __init__(self, fields):
        super().__init__()
        self.fields = fields

    def __getattr__(self, name):
        if name in self:
            return self[name]
        _, kind, many = self.fields[name]
        if many:
            return []
        return {"": 0, "s": "", "b": b"", "m": {}}[kind] if kind in ("", "s", "b", "m") else Message(MESSAGES[kind])


def encode(message, fields):
    """A dictionary as protocol buffers write it. None is left out; a name that the table lacks is an error."""
    out = b""
    for name, value in message.items():
        number, kind, many = fields[name]
        values = value if many else value.items() if kind == "m" else [value]
        for one in values:
            if one is None:
                continue
            if kind == "":
                out += varint(number << 3) + varint(int(one) & (1 << 64) - 1)
                continue
            if kind == "m":
                one = encode({"key": one[0], "value": one[1]}, PAIR)
            elif kind == "s":
                one = one.encode()
            elif kind != "b":
                one = encode(one, MESSAGES[kind])
            out += varint(number << 3 | 2) + varint(len(one)) + one
    return out


def varint(number):
    """A whole number as protocol buffers write it."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out + bytes([number]))


def decode(data, fields):
    """A message. Fields that the table lacks are passed over."""
    message, at = Message(fields), 0
    by_number = {number: (name, kind, many) for name, (number, kind, many) in fields.items()}

    def take():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value - (1 << 64) if value >> 63 else value

    while at < len(data):
        key = take()
        if key & 7 == 0:
            value = take()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or take()
            value, at = data[at:at + size], at + size
        if key >> 3 not in by_number:
            continue
        name, kind, many = by_number[key >> 3]
        if kind == "m":
            entry = decode(value, PAIR)
            message.setdefault(name, {})[entry.key] = entry.value
            continue
        if kind == "s":
            value = value.decode(errors="replace")
        elif kind not in ("", "b"):
            value = decode(value, MESSAGES[kind])
        if many:
            message.setdefault(name, []).append(value)
        else:
            message[name] = value
    return message


class Client:
    """Calls by name; errors are raised as grpc.RpcError."""

    def __init__(self, socket):
        import grpc

        self.grpc = grpc
        self.channel = grpc.insecure_channel(f"unix://{socket}")

    def call(self, method, within, /, **request):
        """One call, within so many seconds: the request's fields, and the decoded answer."""
        service = "ImageService" if "Image" in method else "RuntimeService"
        stub = self.channel.unary_unary(
            f"/runtime.v1.{service}/{method}",
            request_serializer=lambda fields: encode(fields, MESSAGES.get(f"{method}Request", {})),
            response_deserializer=lambda data: decode(data, MESSAGES.get(f"{method}Response", {})))
        return stub(request, timeout=within)
