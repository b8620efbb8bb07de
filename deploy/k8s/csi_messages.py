# SPDX-License-Identifier: Apache-2.0
"""The messages of the Container Storage Interface (v1.8, csi.proto) that a node plugin needs, made
at start from the table below: name, number and type of each field as in the specification, so that
no generated code is kept. Protobuf skips fields that are left out here as unknown ones."""
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf import wrappers_pb2

_F = descriptor_pb2.FieldDescriptorProto
_SCALARS = {"string": _F.TYPE_STRING, "bool": _F.TYPE_BOOL, "int64": _F.TYPE_INT64,
            "int32": _F.TYPE_INT32}
_BOOL = ".google.protobuf.BoolValue"

# "name number type" ...; "map" is map<string, string>, a leading * repeats, a leading = is of an
# enum (an int32 on the wire)
MESSAGES = {
    "GetPluginInfoRequest": "",
    "GetPluginInfoResponse": "name 1 string, vendor_version 2 string, manifest 3 map",
    "GetPluginCapabilitiesRequest": "",
    "GetPluginCapabilitiesResponse": "capabilities 1 *PluginCapability",
    "PluginCapability": "service 1 PluginService",
    "PluginService": "type 1 int32",
    "ProbeRequest": "",
    "ProbeResponse": "ready 1 " + _BOOL,
    "MountVolume": "fs_type 1 string, mount_flags 2 *string, volume_mount_group 3 string",
    "BlockVolume": "",
    "AccessMode": "mode 1 int32",
    "VolumeCapability": "block 1 BlockVolume, mount 2 MountVolume, access_mode 3 AccessMode",
    "NodeStageVolumeRequest": "volume_id 1 string, publish_context 2 map, "
                              "staging_target_path 3 string, volume_capability 4 VolumeCapability, "
                              "secrets 5 map, volume_context 6 map",
    "NodeStageVolumeResponse": "",
    "NodeUnstageVolumeRequest": "volume_id 1 string, staging_target_path 2 string",
    "NodeUnstageVolumeResponse": "",
    "NodePublishVolumeRequest": "volume_id 1 string, publish_context 2 map, "
                                "staging_target_path 3 string, target_path 4 string, "
                                "volume_capability 5 VolumeCapability, readonly 6 bool, "
                                "secrets 7 map, volume_context 8 map",
    "NodePublishVolumeResponse": "",
    "NodeUnpublishVolumeRequest": "volume_id 1 string, target_path 2 string",
    "NodeUnpublishVolumeResponse": "",
    "NodeGetVolumeStatsRequest": "volume_id 1 string, volume_path 2 string, "
                                 "staging_target_path 3 string",
    "VolumeUsage": "available 1 int64, total 2 int64, used 3 int64, unit 4 int32",
    "NodeGetVolumeStatsResponse": "usage 1 *VolumeUsage",
    "NodeGetCapabilitiesRequest": "",
    "NodeServiceRPC": "type 1 int32",
    "NodeServiceCapability": "rpc 1 NodeServiceRPC",
    "NodeGetCapabilitiesResponse": "capabilities 1 *NodeServiceCapability",
    "NodeGetInfoRequest": "",
    "NodeGetInfoResponse": "node_id 1 string, max_volumes_per_node 2 int64",
}

# PluginCapability.Service.Type, NodeServiceCapability.RPC.Type, VolumeUsage.Unit
STAGE_UNSTAGE_VOLUME, GET_VOLUME_STATS = 1, 2
BYTES, INODES = 1, 2
# VolumeCapability.AccessMode.Mode
READER_ONLY = (2, 3)
WRITERS = (1, 4, 5, 6, 7)


def _add_map(message, field):
    entry = message.nested_type.add(name=field.name.title().replace("_", "") + "Entry")
    entry.options.map_entry = True
    for number, name in enumerate(("key", "value"), 1):
        entry.field.add(name=name, number=number, type=_F.TYPE_STRING, label=_F.LABEL_OPTIONAL)
    field.label, field.type = _F.LABEL_REPEATED, _F.TYPE_MESSAGE
    field.type_name = ".csi.v1.%s.%s" % (message.name, entry.name)


def _add_field(message, text):
    name, number, kind = text.split()
    field = message.field.add(name=name, number=int(number), label=_F.LABEL_OPTIONAL)
    if kind.startswith("*"):
        field.label, kind = _F.LABEL_REPEATED, kind[1:]
    if kind == "map":
        _add_map(message, field)
    elif kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = _F.TYPE_MESSAGE
        field.type_name = kind if kind.startswith(".") else ".csi.v1." + kind


def _make():
    file = descriptor_pb2.FileDescriptorProto(name="csi_node.proto", package="csi.v1",
                                              syntax="proto3",
                                              dependency=["google/protobuf/wrappers.proto"])
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for text in filter(None, (f.strip() for f in fields.split(","))):
            _add_field(message, text)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    factory = message_factory.MessageFactory(pool)
    return {n: factory.GetPrototype(pool.FindMessageTypeByName("csi.v1." + n)) for n in MESSAGES}


globals().update(_make())
