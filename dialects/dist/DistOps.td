#ifndef TESSERA_DIST_OPS
#define TESSERA_DIST_OPS

include "dialects/dist/DistDialect.td"
include "dialects/dist/DistInterfaces.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Dist_Op<string mnemonic, list<Trait> traits = []> : Op<Dist_Dialect, mnemonic, traits>;

def Dist_MeshOp : Dist_Op<"mesh", [Symbol, HasParent<"::mlir::ModuleOp">]> {
  let summary = "declares the grid of devices: named axes, the slowest-varying first";
  let description = [{
    Device r of the mesh has the coordinates of r written in mixed radix over the axes, the
    last one fastest.

    ```mlir
    dist.mesh @mesh [#dist.axis<"data" = 4>, #dist.axis<"tensor" = 8>]
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
  let summary = "changes a tensor's sharding; becomes collectives in partition-to-local";
  let description = [{
    `to` is partial only along axes along which the input is: a sum has no unique summands.
  }];
  let arguments = (ins AnyStaticShapeTensor:$input, Dist_ShardingAttr:$to);
  let results = (outs AnyStaticShapeTensor:$result);
  let assemblyFormat = "$input `to` $to attr-dict `:` type($result)";
  let hasVerifier = 1;
}

// Collectives run on one device's local shard. With a result of type !dist.pending
// a collective starts and returns at once; dist.wait waits for it.
def Dist_Result : AnyTypeOf<[AnyStaticShapeTensor, Dist_PendingType]>;
def Dist_Axes : TypedArrayAttrBase<Dist_AxisRefAttr, "mesh axes">;

class Dist_CollectiveOp<string mnemonic, string meaning>
    : Dist_Op<mnemonic, [Dist_CollectiveOpInterface,
                         DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = meaning;
  let results = (outs Dist_Result:$result);
  let hasVerifier = 1;
}

def Dist_AllReduceOp : Dist_CollectiveOp<
    "all_reduce", "every device gets the sum or maximum of all partial values"> {
  let arguments = (ins AnyStaticShapeTensor:$input, FlatSymbolRefAttr:$mesh, Dist_Axes:$axes,
                       Dist_ReduceKindAttr:$kind);
  let assemblyFormat = [{
    $kind $input `over` $mesh $axes attr-dict `:` type($input) `->` type($result)
  }];
  let extraClassDeclaration = [{
    bool isInPlace() { return true; }
    ReduceKindAttr getReduction() { return getKindAttr(); }
  }];
}

// With uneven shards, `shares` has the size of every device's shard along `dim`, in their order
// along the axes.
def Dist_AllGatherOp : Dist_CollectiveOp<
    "all_gather", "every device gets all shards, joined along `dim`"> {
  let arguments = (ins AnyStaticShapeTensor:$input, FlatSymbolRefAttr:$mesh, Dist_Axes:$axes,
                       I64Attr:$dim, OptionalAttr<DenseI64ArrayAttr>:$shares);
  let assemblyFormat = [{
    $input `dim` $dim (`shares` $shares^)? `over` $mesh $axes attr-dict
    `:` type($input) `->` type($result)
  }];
}

def Dist_ReduceScatterOp : Dist_CollectiveOp<
    "reduce_scatter", "reduces partial values; every device keeps its shard along `dim`"> {
  let arguments = (ins AnyStaticShapeTensor:$input, FlatSymbolRefAttr:$mesh, Dist_Axes:$axes,
                       I64Attr:$dim, OptionalAttr<DenseI64ArrayAttr>:$shares,
                       Dist_ReduceKindAttr:$kind);
  let assemblyFormat = [{
    $kind $input `dim` $dim (`shares` $shares^)? `over` $mesh $axes attr-dict
    `:` type($input) `->` type($result)
  }];
  let extraClassDeclaration = [{
    ReduceKindAttr getReduction() { return getKindAttr(); }
  }];
}

def Dist_AllToAllOp : Dist_CollectiveOp<
    "all_to_all",
    "splits along `splitDim`, sends piece i to device i, joins received pieces along `joinDim`"> {
  let arguments = (ins AnyStaticShapeTensor:$input, FlatSymbolRefAttr:$mesh, Dist_Axes:$axes,
                       I64Attr:$splitDim, I64Attr:$joinDim);
  let assemblyFormat = [{
    $input `split` $splitDim `join` $joinDim `over` $mesh $axes attr-dict
    `:` type($input) `->` type($result)
  }];
  let extraClassDeclaration = [{
    bool keepsOrder() { return true; }
  }];
}

def Dist_PermuteOp : Dist_CollectiveOp<
    "permute", "device i along the axes sends to device targets[i]; -1: does not send"> {
  let description = [{A device that receives nothing gets zeros.}];
  let arguments = (ins AnyStaticShapeTensor:$input, FlatSymbolRefAttr:$mesh, Dist_Axes:$axes,
                       DenseI64ArrayAttr:$targets);
  let assemblyFormat = [{
    $input `targets` $targets `over` $mesh $axes attr-dict `:` type($input) `->` type($result)
  }];
  let extraClassDeclaration = [{
    bool keepsOrder() { return true; }
  }];
}

def Dist_ExchangeRowsOp : Dist_CollectiveOp<
    "exchange_rows", "all-to-all of rows, with counts that are known at run time"> {
  let description = [{
    `counts` i32[4, devices × pieces] lists pieces of adjacent rows: `pieces` for device 0 along the
    axes, then as many for device 1, and so on. Its rows are: how many rows of `input` [n, width]
    each piece sends, the first of them, how many rows of the result [m, width] each piece receives,
    and the first of them. Piece j of one device for another is piece j that the other receives from
    it. What no piece receives is zero. An empty piece may have any first row.

    With `counts` i32[2, devices], how many rows to send to each device and how many to receive,
    there is one piece for each device, and pieces follow each other.

    The producer of `counts` must ensure that both sides agree, and that n and m are large enough.
    Every device takes part, also without rows.

    `partition-to-local` makes it of `graph.send_rows` and `graph.return_rows`.

    ```mlir
    %y = dist.exchange_rows %x counts %c over @mesh [#dist.axis_ref<"expert">]
        : tensor<16x8xf32>, tensor<2x4xi32> -> tensor<64x8xf32>
    ```
  }];
  let arguments = (ins AnyStaticShapeTensor:$input, StaticShapeTensorOf<[I32]>:$counts,
                       FlatSymbolRefAttr:$mesh, Dist_Axes:$axes);
  let assemblyFormat = [{
    $input `counts` $counts `over` $mesh $axes attr-dict
    `:` type($input) `,` type($counts) `->` type($result)
  }];
  let extraClassDeclaration = [{
    bool keepsOrder() { return true; }
  }];
}

def Dist_OffsetOp : Dist_Op<"offset",
                            [Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "the index of this device's first element of `size` elements sharded along `axes`";
  let description = [{
    The only op whose result differs between devices that run one program. `partition-to-local`
    makes it, and replaces it by a slice of the input "mesh.offsets".
  }];
  let arguments = (ins FlatSymbolRefAttr:$mesh, Dist_Axes:$axes,
                       ConfinedAttr<I64Attr, [IntPositive]>:$size);
  let results = (outs 0DTensorOf<[I32]>:$result);
  let assemblyFormat = "`of` $size `over` $mesh $axes attr-dict `:` type($result)";
}

def Dist_WaitOp : Dist_Op<"wait"> {
  let summary = "waits for a started collective and returns its tensor";
  let arguments = (ins Dist_PendingType:$pending);
  let results = (outs AnyStaticShapeTensor:$result);
  let assemblyFormat = "$pending attr-dict `:` type($pending) `->` type($result)";
  let hasVerifier = 1;
}

// Tensors that are sent together.
class Dist_PackingOp<string mnemonic, string meaning> : Dist_Op<mnemonic, [Pure]> {
  let summary = meaning;
  let hasVerifier = 1;
}

def Dist_PackOp : Dist_PackingOp<"pack", "concatenates tensors of one element type in one buffer"> {
  let description = [{
    The buffer has `pieces` pieces of equal size. Each piece has an equal part of each tensor: the
    tensor's elements divided by `pieces` in their order, aligned to 64 bytes. The padding between
    tensors is undefined. all_reduce and all_gather take one piece, reduce_scatter one piece for
    each device. Made by `bucket-collectives`, and by `partition-to-local` of the chunks of a
    collective matmul. In planning the producer of a tensor writes into the pack wherever it can.

    ```mlir
    %p = dist.pack(%a, %b) pieces 1 : (tensor<4x8xf32>, tensor<5xf32>) -> tensor<48xf32>
    ```
  }];
  let arguments = (ins Variadic<AnyStaticShapeTensor>:$inputs,
                       ConfinedAttr<I64Attr, [IntPositive]>:$pieces);
  let results = (outs AnyStaticShapeTensor:$result);
  let assemblyFormat = [{
    `(` $inputs `)` `pieces` $pieces attr-dict `:` functional-type($inputs, $result)
  }];
}

def Dist_UnpackOp : Dist_PackingOp<"unpack", "extracts the tensors of a dist.pack"> {
  let description = [{
    With one piece the results are views of `packed`; with several, copies.

    ```mlir
    %a, %b = dist.unpack %p pieces 1 : (tensor<48xf32>) -> (tensor<4x8xf32>, tensor<5xf32>)
    ```
  }];
  let arguments = (ins AnyStaticShapeTensor:$packed,
                       ConfinedAttr<I64Attr, [IntPositive]>:$pieces);
  let results = (outs Variadic<AnyStaticShapeTensor>:$outputs);
  let assemblyFormat = "$packed `pieces` $pieces attr-dict `:` functional-type($packed, $outputs)";
}

#endif
