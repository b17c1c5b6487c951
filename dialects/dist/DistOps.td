#ifndef TESSERA_DIST_OPS
#define TESSERA_DIST_OPS

include "dialects/dist/DistDialect.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Dist_Op<string mnemonic, list<Trait> traits = []> : Op<Dist_Dialect, mnemonic, traits>;

def Dist_MeshOp : Dist_Op<"mesh", [Symbol, HasParent<"::mlir::ModuleOp">]> {
  let summary = "the grid of devices: named axes, the slowest-varying first";
  let description = [{
    Device r of the mesh has the coordinates of r written in mixed radix over the axes, the
    last one fastest.

    ```mlir
    dist.mesh @mesh [#dist.axis<"data" = 4 rail>, #dist.axis<"tensor" = 8 nvlink>]
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypedArrayAttrBase<Dist_AxisAttr, "axes">:$axes);
  let assemblyFormat = "$sym_name $axes attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::tessera::dist::AxisAttr getAxis(::llvm::StringRef name);
    int64_t getDeviceCount();
  }];
}

def Dist_ReshardOp : Dist_Op<"reshard", [Pure, AllTypesMatch<["input", "result"]>]> {
  let summary = "the same global tensor under another sharding; partitioning makes collectives of it";
  let description = [{
    `to` is partial at most along axes along which the input is: a sum has no unique parts.
  }];
  let arguments = (ins AnyStaticShapeTensor:$input, Dist_ShardingAttr:$to);
  let results = (outs AnyStaticShapeTensor:$result);
  let assemblyFormat = "$input `to` $to attr-dict `:` type($result)";
  let hasVerifier = 1;
}

// Collectives run on one device's share. A result of type !dist.pending starts
// the collective and returns at once; dist.wait ends it.
def Dist_Result : AnyTypeOf<[AnyStaticShapeTensor, Dist_PendingType]>;
def Dist_Axes : TypedArrayAttrBase<Dist_AxisRefAttr, "mesh axes">;

class Dist_CollectiveOp<string mnemonic, string meaning>
    : Dist_Op<mnemonic, [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = meaning;
  let results = (outs Dist_Result:$result);
  let hasVerifier = 1;
}

def Dist_AllReduceOp : Dist_CollectiveOp<"all_reduce", "every device gets the combination of all parts"> {
  let arguments = (ins AnyStaticShapeTensor:$input, FlatSymbolRefAttr:$mesh, Dist_Axes:$axes, Dist_ReduceKindAttr:$kind);
  let assemblyFormat = "$kind $input `over` $mesh $axes attr-dict `:` type($input) `->` type($result)";
}

// Where shares differ, `shares` has the size along `dim` of every device's, in their order along the axes.
def Dist_AllGatherOp : Dist_CollectiveOp<"all_gather", "every device gets all shares, joined along `dim`"> {
  let arguments = (ins AnyStaticShapeTensor:$input, FlatSymbolRefAttr:$mesh, Dist_Axes:$axes, I64Attr:$dim,
                       OptionalAttr<DenseI64ArrayAttr>:$shares);
  let assemblyFormat = "$input `dim` $dim (`shares` $shares^)? `over` $mesh $axes attr-dict `:` type($input) `->` type($result)";
}

def Dist_ReduceScatterOp : Dist_CollectiveOp<"reduce_scatter", "parts are combined and every device keeps its share along `dim`"> {
  let arguments = (ins AnyStaticShapeTensor:$input, FlatSymbolRefAttr:$mesh, Dist_Axes:$axes, I64Attr:$dim,
                       OptionalAttr<DenseI64ArrayAttr>:$shares, Dist_ReduceKindAttr:$kind);
  let assemblyFormat = "$kind $input `dim` $dim (`shares` $shares^)? `over` $mesh $axes attr-dict `:` type($input) `->` type($result)";
}

def Dist_AllToAllOp : Dist_CollectiveOp<"all_to_all", "cuts along `splitDim`, sends piece i to device i, joins what comes along `joinDim`"> {
  let arguments = (ins AnyStaticShapeTensor:$input, FlatSymbolRefAttr:$mesh, Dist_Axes:$axes, I64Attr:$splitDim, I64Attr:$joinDim);
  let assemblyFormat = "$input `split` $splitDim `join` $joinDim `over` $mesh $axes attr-dict `:` type($input) `->` type($result)";
}

def Dist_PermuteOp : Dist_CollectiveOp<"permute", "device i along the axes sends to device targets[i]; -1 sends to nobody"> {
  let description = [{A device to which nobody sends gets zeros.}];
  let arguments = (ins AnyStaticShapeTensor:$input, FlatSymbolRefAttr:$mesh, Dist_Axes:$axes, DenseI64ArrayAttr:$targets);
  let assemblyFormat = "$input `targets` $targets `over` $mesh $axes attr-dict `:` type($input) `->` type($result)";
}

def Dist_ExchangeRowsOp : Dist_CollectiveOp<"exchange_rows", "rows in one run for each device go there; how many is data"> {
  let description = [{
    `input` [n, width] begins with the rows for device 0, then those for device 1 along the axes, and so on; what is behind them stays.
    The result [m, width] has those that come, in the order of devices, and zeros behind. `counts` i32[2, devices] says how many rows
    go to each and how many come from each; whoever makes it sees to it that the two sides agree, and that n and m are enough.
    Every device takes part, also those without a row.

    Made by `partition-to-local` of `graph.send_rows` and `graph.return_rows`.

    ```mlir
    %y = dist.exchange_rows %x counts %c over @mesh [#dist.axis_ref<"expert">] : tensor<16x8xf32>, tensor<2x4xi32> -> tensor<64x8xf32>
    ```
  }];
  let arguments = (ins AnyStaticShapeTensor:$input, StaticShapeTensorOf<[I32]>:$counts, FlatSymbolRefAttr:$mesh, Dist_Axes:$axes);
  let assemblyFormat = "$input `counts` $counts `over` $mesh $axes attr-dict `:` type($input) `,` type($counts) `->` type($result)";
}

def Dist_OffsetOp : Dist_Op<"offset", [Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "the index of the first element that this device has of `size` cut along `axes`";
  let description = [{
    The only op whose result differs between devices that run one program. Made and, as a slice of the input
    "mesh.offsets", consumed by `partition-to-local`.
  }];
  let arguments = (ins FlatSymbolRefAttr:$mesh, Dist_Axes:$axes, ConfinedAttr<I64Attr, [IntPositive]>:$size);
  let results = (outs 0DTensorOf<[I32]>:$result);
  let assemblyFormat = "`of` $size `over` $mesh $axes attr-dict `:` type($result)";
}

def Dist_WaitOp : Dist_Op<"wait"> {
  let summary = "the tensor of a started collective, once it is there";
  let arguments = (ins Dist_PendingType:$pending);
  let results = (outs AnyStaticShapeTensor:$result);
  let assemblyFormat = "$pending attr-dict `:` type($pending) `->` type($result)";
  let hasVerifier = 1;
}

// Tensors that travel together.
class Dist_PackingOp<string mnemonic, string meaning> : Dist_Op<mnemonic, [Pure]> {
  let summary = meaning;
  let hasVerifier = 1;
}

def Dist_PackOp : Dist_PackingOp<"pack", "tensors of one type behind one another, in one dimension"> {
  let description = [{
    `pieces` runs of equal size; a run has the same part of each tensor, that tensor's elements divided by `pieces` in their
    order, from a multiple of 64 bytes on. What lies between tensors is anything.
    One piece is what all_reduce and all_gather take, a piece for each device what reduce_scatter takes.
    Made by `bucket-collectives`, and by `partition-to-local` of parts of products. In planning the producer of a tensor writes into the pack wherever it can.

    ```mlir
    %p = dist.pack(%a, %b) pieces 1 : (tensor<4x8xf32>, tensor<5xf32>) -> tensor<48xf32>
    ```
  }];
  let arguments = (ins Variadic<AnyStaticShapeTensor>:$inputs, ConfinedAttr<I64Attr, [IntPositive]>:$pieces);
  let results = (outs AnyStaticShapeTensor:$result);
  let assemblyFormat = "`(` $inputs `)` `pieces` $pieces attr-dict `:` functional-type($inputs, $result)";
}

def Dist_UnpackOp : Dist_PackingOp<"unpack", "the tensors that dist.pack put together, their pieces joined"> {
  let description = [{
    Of one piece the results are parts of `packed` where they are; of several, copies.

    ```mlir
    %a, %b = dist.unpack %p pieces 1 : (tensor<48xf32>) -> (tensor<4x8xf32>, tensor<5xf32>)
    ```
  }];
  let arguments = (ins AnyStaticShapeTensor:$packed, ConfinedAttr<I64Attr, [IntPositive]>:$pieces);
  let results = (outs Variadic<AnyStaticShapeTensor>:$outputs);
  let assemblyFormat = "$packed `pieces` $pieces attr-dict `:` functional-type($packed, $outputs)";
}

#endif
