// The dist dialect: meshes, shardings, collectives. See README.md in this folder.
#ifndef TESSERA_DIST_DIALECT
#define TESSERA_DIST_DIALECT

include "mlir/IR/OpBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/AttrTypeBase.td"

def Dist_Dialect : Dialect {
  let name = "dist";
  let cppNamespace = "::tessera::dist";
  let summary = "Distributed programs: meshes, shardings, collectives";
  let description = [{
    A mesh names the axes of the device grid. A sharding says for a tensor, dimension by
    dimension, along which axes it is sharded, and along which axes each device holds only a
    *partial value* of a sum (or of a maximum). `dist.sharding` on a function argument or result and
    `dist.shardings` (one entry for each result) on an operation attach them.

    Before partitioning tensors are global and shardings are attributes. Afterwards tensors are one
    device's local shards, with collectives between them.
  }];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
}

class Dist_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let genSpecializedAttr = 0;
  let cppNamespace = "::tessera::dist";
}

def Dist_ReduceKind : Dist_Enum<"ReduceKind", "how partial values are reduced", [
  I32EnumAttrCase<"sum", 0>, I32EnumAttrCase<"max", 1>]>;
def Dist_ReduceKindAttr : EnumAttr<Dist_Dialect, Dist_ReduceKind, "reduce_kind">;

class Dist_Attr<string name, string mnemonic_> : AttrDef<Dist_Dialect, name> {
  let mnemonic = mnemonic_;
}

def Dist_AxisAttr : Dist_Attr<"Axis", "axis"> {
  let summary = "a named axis of a mesh, and its size";
  let parameters = (ins StringRefParameter<>:$name, "int64_t":$size);
  let assemblyFormat = "`<` $name `=` $size `>`";
  let genVerifyDecl = 1;
}

def Dist_LinkAttr : Dist_Attr<"Link", "link"> {
  let summary = "a tier of links: how many devices it connects, and its costs";
  let description = [{
    `span` is 0 if it connects all devices. `bandwidth` is what a device sends in bytes per second,
    `latency` that of a message in nanoseconds.
  }];
  let parameters = (ins "int64_t":$span, "int64_t":$bandwidth, "int64_t":$latency);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Dist_ClusterAttr : Dist_Attr<"Cluster", "cluster"> {
  let summary = "the devices and links for which costs of a program are estimated";
  let description = [{
    As `dist.cluster` of a module, it is what passes estimate costs for: which dimensions are
    sharded, which collectives are decomposed, merged or started early. `flops` are what a device
    sustains in bf16, `memory` is the bandwidth of its memory in bytes per second, `launch`
    the launch of a kernel in nanoseconds. Tiers of links are nested, the nearest first; devices
    that follow one another are near. Without the attribute costs are those of GPUs of the Hopper
    class in round numbers.
  }];
  let parameters = (ins StringRefParameter<>:$name, "int64_t":$flops, "int64_t":$memory,
                        "int64_t":$launch, ArrayRefParameter<"LinkAttr">:$links);
  let assemblyFormat = [{
    `<` $name `flops` `=` $flops `memory` `=` $memory `launch` `=` $launch
    `links` `=` `[` $links `]` `>`
  }];
  let genVerifyDecl = 1;
}

def Dist_AxisRefAttr : Dist_Attr<"AxisRef", "axis_ref"> {
  let summary = "a mesh axis, or a sub-axis of one";
  let description = [{
    A sub-axis is `name:(pre)size`: of the axis split into pre × size × rest, the
    middle factor (major to minor). `size` 0 means the whole axis.
  }];
  let parameters = (ins StringRefParameter<>:$name, DefaultValuedParameter<"int64_t", "1">:$pre,
                        DefaultValuedParameter<"int64_t", "0">:$size);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{ bool isWhole() const { return getSize() == 0; } }];
}

def Dist_FactorAttr : Dist_Attr<"Factor", "factor"> {
  let summary = "one factor of a dimension's size, and the axes that shard it, major first";
  let description = [{`size` 0 means the whole dimension.}];
  let parameters = (ins "int64_t":$size,
                        OptionalArrayRefParameter<"::tessera::dist::AxisRefAttr">:$axes);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Dist_DimShardingAttr : Dist_Attr<"DimSharding", "dim"> {
  let summary = "how one dimension is sharded";
  let description = [{
    A dimension is sharded as a whole, or is a product of factors, the slowest-varying first, of
    which some are sharded: the columns of a fused projection of query, key and value are
    `{3, 128:"tensor"}`, rows that are sequences × tokens `{4:"data", 256:"context"}`. A shard has
    the elements whose index in every factor is in its range, in the same order.

    A factor of size N along an axis of n devices has ranges of ⌈N/n⌉ for the first N mod n devices
    and ⌊N/n⌋ for the others; the next axis splits such a range again.
  }];
  let parameters = (ins OptionalArrayRefParameter<"::tessera::dist::FactorAttr">:$factors);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let builders = [AttrBuilder<(ins "::llvm::ArrayRef<::tessera::dist::AxisRefAttr>":$axes), [{
    return $_get($_ctxt, ::tessera::dist::FactorAttr::get($_ctxt, 0, axes));
  }]>];
  let extraClassDeclaration = [{
    /// All axes that shard the dimension, factor by factor.
    ::llvm::SmallVector<::tessera::dist::AxisRefAttr> getAxes() const;
  }];
}

def Dist_ShardingAttr : Dist_Attr<"Sharding", "sharding"> {
  let summary = "how a tensor is distributed over a mesh";
  let description = [{
    `dims` has one entry for each dimension; along an axis that is not named the tensor is
    replicated. Along the axes of `partial` every device holds a partial value, and the tensor is
    their sum or maximum. Along the axes of `own` rows are in device-local order: every device has
    other rows, grouped in its own order (`graph.group_rows` of some tokens, or for some groups).
    They cannot be moved, because they lack a common order; only sums over them can. With `room`, a
    device has a buffer for that many rows, whatever the first dimension and its axes are: rows that
    were sent to the devices of their groups, as many as come in one round.

    ```mlir
    #dist.sharding<@mesh, [{"data"}, {}, {"tensor"} ]>
    #dist.sharding<@mesh, [{"data"}, {} ], partial sum {"tensor"}>
    #dist.sharding<@mesh, [{"data", "tensor":(1)2} ]>
    #dist.sharding<@mesh, [{"data"}, {} ], own {"data", "expert"}>
    #dist.sharding<@mesh, [{"data"}, {} ], own {"data", "expert"}, room 192>
    ```
  }];
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$mesh,
                        OptionalArrayRefParameter<"::tessera::dist::DimShardingAttr">:$dims,
                        DefaultValuedParameter<"::tessera::dist::ReduceKind",
                                               "::tessera::dist::ReduceKind::sum">:$kind,
                        OptionalArrayRefParameter<"::tessera::dist::AxisRefAttr">:$partial,
                        OptionalArrayRefParameter<"::tessera::dist::AxisRefAttr">:$own,
                        DefaultValuedParameter<"int64_t", "0">:$room);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{ bool isPartial() const { return !getPartial().empty(); } }];
}

class Dist_Type<string name, string mnemonic_> : TypeDef<Dist_Dialect, name> {
  let mnemonic = mnemonic_;
}

def Dist_PendingType : Dist_Type<"Pending", "pending"> {
  let summary = "the result of a collective that was started but not waited for";
  let parameters = (ins "::mlir::RankedTensorType":$tensor);
  let assemblyFormat = "`<` $tensor `>`";
}

#endif
