#ifndef TESSERA_TILE_OPS
#define TESSERA_TILE_OPS

include "dialects/tile/TileDialect.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/FunctionInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Tile_Op<string mnemonic, list<Trait> traits = []> : Op<Tile_Dialect, mnemonic, traits>;

def Tile_Vector : VectorOfAnyRankOf<[AnyFloat, AnySignlessInteger, Index]>;

//===--- kernels and launches ---------------------------------------------===//

def Tile_KernelOp : Tile_Op<"kernel", [IsolatedFromAbove, FunctionOpInterface, Symbol]> {
  let summary = "defines a kernel: what a single block does";
  let description = [{
    Arguments, in this order: the block number (index, 0 ≤ block < the launch's count),
    `dynamic_sizes` sizes (index), then the buffers (memrefs, global, static or
    with one dynamic dimension). Blocks are independent and may run in any order
    and on any thread: a kernel never depends on how blocks are grouped.

    `warps`, on targets whose blocks are many threads: how they divide a two-dimensional tile,
    as rows × columns of warps; absent from kernels whose tiles have one dimension. `gemm`: see
    that attribute.

    Made by `emit-kernels`, one for every distinct cluster and target; consumed by the targets.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<FunctionType>:$function_type,
    Tile_SkeletonAttr:$skeleton, DefaultValuedAttr<I64Attr, "0">:$dynamic_sizes,
    ArrayAttr:$access, StrAttr:$summary, OptionalAttr<DenseI64ArrayAttr>:$warps,
    OptionalAttr<Tile_GemmAttr>:$gemm,
    OptionalAttr<DictArrayAttr>:$arg_attrs, OptionalAttr<DictArrayAttr>:$res_attrs);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let skipDefaultBuilders = 1;
  let builders = [OpBuilder<(ins "::llvm::StringRef":$name, "::tessera::tile::Skeleton":$skeleton,
    "int64_t":$dynamicSizes, "::mlir::TypeRange":$buffers,
    "::llvm::ArrayRef<::tessera::tile::Access>":$access, "::llvm::StringRef":$summary)>];
  let extraClassDeclaration = [{
    ::llvm::ArrayRef<::mlir::Type> getArgumentTypes() { return getFunctionType().getInputs(); }
    ::llvm::ArrayRef<::mlir::Type> getResultTypes() { return {}; }
    ::mlir::Region *getCallableRegion() { return &getBody(); }
    ::mlir::BlockArgument getBlockNumber() { return getBody().getArgument(0); }
    ::mlir::Block::BlockArgListType getSizes() {
      return getBody().getArguments().slice(1, getDynamicSizes());
    }
    ::mlir::Block::BlockArgListType getBuffers() {
      return getBody().getArguments().drop_front(1 + getDynamicSizes());
    }
    ::tessera::tile::Access getBufferAccess(unsigned i) {
      return ::mlir::cast<::tessera::tile::AccessAttr>(getAccess()[i]).getValue();
    }
  }];
}

def Tile_ReturnOp : Tile_Op<"return", [Pure, Terminator, ReturnLike, HasParent<"KernelOp">]> {
  let summary = "ends a kernel";
  let assemblyFormat = "attr-dict";
}

def Tile_LaunchOp : Tile_Op<"launch", [Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "launches a kernel over all its blocks, on tensors";
  let description = [{
    A launch has one or more *instances*: the same kernel on other buffers, in one
    parallel region (all AdamW updates are one launch). Operands and results are
    instance by instance; each instance brings the kernel's read and read_write
    buffers as operands and its write and read_write buffers as results, both in
    buffer order. `blocks` has one count for each instance, `sizes` the kernel's dynamic
    sizes for each instance. A read_write buffer's operand and result share memory.
    `reuse` lists (operand, result) pairs of one instance, by position within it, that may
    share memory because the kernel reads an element before it writes the one at the same index.
  }];
  let arguments = (ins FlatSymbolRefAttr:$kernel, Variadic<AnyStaticShapeTensor>:$inputs,
    DenseI64ArrayAttr:$blocks, DenseI64ArrayAttr:$sizes, OptionalAttr<DenseI64ArrayAttr>:$reuse);
  let results = (outs Variadic<AnyStaticShapeTensor>:$outputs);
  let assemblyFormat = [{
    $kernel `(` $inputs `)` `blocks` $blocks `sizes` $sizes (`reuse` $reuse^)? attr-dict
    `:` functional-type($inputs, $outputs)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    int64_t getNumInstances() { return getBlocks().size(); }
    ::mlir::OperandRange getInstanceInputs(int64_t i) {
      int64_t n = getInputs().size() / getNumInstances();
      return getInputs().slice(i * n, n);
    }
    ::mlir::ResultRange getInstanceOutputs(int64_t i) {
      int64_t n = getOutputs().size() / getNumInstances();
      return getOutputs().slice(i * n, n);
    }
  }];
}

//===--- moving tiles -----------------------------------------------------===//

def Tile_LoadOp : Tile_Op<"load", [AttrSizedOperandSegments]> {
  let summary = "loads a tile from memory into registers";
  let description = [{
    Reads the box that starts at `indices`; vector dimension d runs along memory
    dimension `along[d]` (distinct, in any order: [1, 0] reads transposed), every other
    dimension stays at its index. The whole box must be inside the memref, unless `bound` is given:
    the number of valid elements from the start index on, along the last vector dimension, or with
    two bounds along the last two. Elements beyond it are zero, and memory is not accessed. Two
    bounds are for targets with block-wide tiles.

    ```mlir
    %a = tile.load %x[%i, %k] along [0, 1] : memref<256x768xf32>, vector<8x1xf32>
    ```
  }];
  let arguments = (ins Arg<AnyMemRef, "", [MemRead]>:$memory, Variadic<Index>:$indices,
                       Variadic<Index>:$bounds, DenseI64ArrayAttr:$along);
  let results = (outs Tile_Vector:$result);
  let assemblyFormat = [{
    $memory `[` $indices `]` `along` $along (`bound` $bounds^)? attr-dict
    `:` type($memory) `,` type($result)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The only bound; null where there is none.
    ::mlir::Value getBound() { return getBounds().size() == 1 ? getBounds()[0] : ::mlir::Value(); }
  }];
}

def Tile_StoreOp : Tile_Op<"store", [AttrSizedOperandSegments]> {
  let summary = "stores a register tile to memory, as tile.load loads one";
  let arguments = (ins Tile_Vector:$value, Arg<AnyMemRef, "", [MemWrite]>:$memory,
                       Variadic<Index>:$indices, Variadic<Index>:$bounds, DenseI64ArrayAttr:$along);
  let assemblyFormat = [{
    $value `,` $memory `[` $indices `]` `along` $along (`bound` $bounds^)? attr-dict
    `:` type($value) `,` type($memory)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The only bound; null where there is none.
    ::mlir::Value getBound() { return getBounds().size() == 1 ? getBounds()[0] : ::mlir::Value(); }
  }];
}

def Tile_AllocOp : Tile_Op<"alloc", [MemoryEffects<[MemAlloc]>]> {
  let summary = "allocates static memory of a block for the whole kernel";
  let description = [{
    Only at the top level of a kernel. All allocations are live throughout the kernel: their sum is
    the shared memory (GPU) or the scratch (CPU) that a block needs. Contents are undefined.
  }];
  let results = (outs AnyMemRef:$memory);
  let assemblyFormat = "attr-dict `:` type($memory)";
  let hasVerifier = 1;
}

def Tile_CopyOp : Tile_Op<"copy", [AttrSizedOperandSegments]> {
  let summary = "copies a box to shared memory, asynchronously if the target can";
  let description = [{
    Copies a box of `shape` from `source` at `sourceIndices` to `target` at `targetIndices`; box
    dimension d runs along `sourceAlong[d]`, or repeats where that is -1, and along
    `targetAlong[d]`. The copy is complete after a `tile.wait` that covers the group closed by the
    next `tile.commit`. `bounds`, none or one for each box dimension, are the valid elements from
    the source's start on; beyond them the target gets zeros. The copy may upcast floats and
    convert int8 to floats; then the source may be shared memory, too.
  }];
  let arguments = (ins Arg<AnyMemRef, "", [MemRead]>:$source, Variadic<Index>:$sourceIndices,
                       Arg<AnyMemRef, "", [MemWrite]>:$target, Variadic<Index>:$targetIndices,
                       Variadic<Index>:$bounds, DenseI64ArrayAttr:$shape,
                       DenseI64ArrayAttr:$sourceAlong, DenseI64ArrayAttr:$targetAlong);
  let assemblyFormat = [{
    $source `[` $sourceIndices `]` `along` $sourceAlong
    `to` $target `[` $targetIndices `]` `along` $targetAlong `shape` $shape
    (`bound` $bounds^)? attr-dict `:` type($source) `to` type($target)
  }];
  let hasVerifier = 1;
}

def Tile_CommitOp : Tile_Op<"commit", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "closes the group of copies issued since the last commit";
  let assemblyFormat = "attr-dict";
}

def Tile_WaitOp : Tile_Op<"wait", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "waits until at most `pending` groups of copies are in flight; a block barrier";
  let arguments = (ins I64Attr:$pending);
  let assemblyFormat = "$pending attr-dict";
  let hasVerifier = 1;
}

def Tile_BarrierOp : Tile_Op<"barrier", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "synchronizes the threads of a block and makes their shared memory visible";
  let assemblyFormat = "attr-dict";
}

//===--- warp specialization ----------------------------------------------===//

// On targets with a tensor memory accelerator (TMA) and asynchronous tensor
// cores (sm_90a): a producer warp starts copies, consumer warpgroups multiply
// the stages that have arrived.

class Tile_RingOp<string mnemonic> : Tile_Op<mnemonic, [MemoryEffects<[MemRead, MemWrite]>]>;

def Tile_MakeRingOp : Tile_Op<"ring", [MemoryEffects<[MemAlloc]>]> {
  let summary = "creates the barriers of a ring of stages, all of them empty";
  let description = "Only at the top level of a kernel.";
  let results = (outs Tile_RingType:$ring);
  let assemblyFormat = "attr-dict `:` type($ring)";
  let hasVerifier = 1;
}

def Tile_WarpSpecializeOp : Tile_Op<"warp_specialize", [NoTerminator, NoRegionArguments,
                                               RecursiveMemoryEffects, HasParent<"KernelOp">]> {
  let summary = "divides a block into a producer and consumer warpgroups (warp specialization)";
  let description = [{
    The last op of a kernel. Its consumers are the kernel's `warps`, whole warpgroups. The
    producer's threads follow them, and one of these runs `producer`. `registers`, if present,
    reallocates registers (setmaxnreg): those of a producer thread and of a consumer thread. Tiles
    are in `consumers` only.
  }];
  let arguments = (ins OptionalAttr<DenseI64ArrayAttr>:$registers);
  let regions = (region SizedRegion<1>:$producer, SizedRegion<1>:$consumers);
  let assemblyFormat = [{
    (`registers` $registers^)? `producer` $producer `consumers` $consumers attr-dict
  }];
  let hasVerifier = 1;
}

def Tile_AcquireOp : Tile_RingOp<"acquire"> {
  let summary = "producer: waits until the next stage is empty";
  let description = "`bytes`: all bytes of the stage's copies; it is full once they arrived.";
  let arguments = (ins Tile_RingType:$ring, I64Attr:$bytes);
  let results = (outs Index:$stage);
  let assemblyFormat = "$ring `bytes` $bytes attr-dict `:` type($ring)";
  let hasVerifier = 1;
}

def Tile_BulkCopyOp : Tile_Op<"bulk_copy"> {
  let summary = "producer: copies a box of a tensor into a stage by TMA (bulk tensor copy)";
  let description = [{
    Fills `target`[stage], of memory [stages, rows, columns] in layout `swizzled`, with the box of
    `source` that begins at `indices`. Its rows run along source dimension `along[0]`, its columns
    along `along[1]`, whose elements are contiguous. Elements outside the source are zero. `source`
    is a static view of one of the kernel's buffers, of at most five dimensions; its other strides
    and its offset are multiples of 16 bytes.

    ```mlir
    tile.bulk_copy %x[%m, %k] along [0, 1] to %staged[%stage] on %ring
      : memref<256x512xbf16> to memref<4x128x64xbf16, #tile.shared<swizzled>>,
        !tile.ring<4 stages, 2 consumers>
    ```
  }];
  let arguments = (ins Arg<AnyMemRef, "", [MemRead]>:$source, Variadic<Index>:$indices,
                       Arg<AnyMemRef, "", [MemWrite]>:$target, Index:$stage, Tile_RingType:$ring,
                       DenseI64ArrayAttr:$along);
  let assemblyFormat = [{
    $source `[` $indices `]` `along` $along `to` $target `[` $stage `]` `on` $ring attr-dict
    `:` type($source) `to` type($target) `,` type($ring)
  }];
  let hasVerifier = 1;
}

def Tile_AwaitOp : Tile_RingOp<"await"> {
  let summary = "consumers: waits until the next stage is full";
  let arguments = (ins Tile_RingType:$ring);
  let results = (outs Index:$stage);
  let assemblyFormat = "$ring attr-dict `:` type($ring)";
  let hasVerifier = 1;
}

def Tile_ReleaseOp : Tile_RingOp<"release"> {
  let summary = "consumers: releases a stage to the producer";
  let description = [{
    Waits until only the last `tile.mma_async` is in flight, then releases the stage of the
    `tile.await` before the last one, if there was one. With `last` it releases the stage of the
    last `tile.await`, and the one before if it is still held, at once; the `tile.mma_wait` of their
    readers must precede it.
  }];
  let arguments = (ins Tile_RingType:$ring, UnitAttr:$last);
  let assemblyFormat = "(`last` $last^)? $ring attr-dict `:` type($ring)";
  let hasVerifier = 1;
}

def Tile_PingPongOp : Tile_RingOp<"ping_pong"> {
  let summary = "consumers: orders the products of warpgroups (ping-pong)";
  let description = [{
    `take` waits until the previous warpgroup (for the first one, the last) has reached its `pass`;
    the first `take` of the first warpgroup does not wait. All warpgroups take and pass alternately
    and equally often. While one multiplies, the others compute.
  }];
  let arguments = (ins Tile_TurnAttr:$turn);
  let assemblyFormat = "$turn attr-dict";
  let hasVerifier = 1;
}

//===--- computing on tiles -----------------------------------------------===//

def Tile_MmaOp : Tile_Op<"mma", [Pure, AllTypesMatch<["accumulator", "result"]>]> {
  let summary = "multiplies tiles: accumulator + lhs × rhs";
  let description = [{
    `lhs` m×k, `rhs` k×n, `accumulator` m×n of f32 (f64 for f64 inputs). Each product of two bf16 is
    exact; the target decides the order of summation within one mma. Operands of i32 are words of
    four bytes, signed in `lhs` and unsigned in `rhs`; a product of words is the sum of the four
    products of bytes. `accumulator` is i32 then, and wraps around.

    With `pairs` it is i32 as two integers of 16 bits: the lower one sums the products of bytes 0
    and 1, the upper one those of bytes 2 and 3 (`vpmaddubsw`). Neither may leave 16 bits, which
    the maker of the op ensures. CPUs only.
  }];
  let arguments = (ins Tile_Vector:$lhs, Tile_Vector:$rhs, Tile_Vector:$accumulator,
                       UnitAttr:$pairs);
  let results = (outs Tile_Vector:$result);
  let assemblyFormat = [{
    $lhs `,` $rhs `,` $accumulator (`pairs` $pairs^)? attr-dict
    `:` type($lhs) `,` type($rhs) `,` type($accumulator)
  }];
  let hasVerifier = 1;
}

def Tile_MmaStagedOp : Tile_Op<"mma_staged", [AttrSizedOperandSegments]> {
  let summary = "multiplies staged matrices onto sums in memory, in matrix registers (AMX)";
  let description = [{
    Adds the product of lhs [m, k] and rhs [k, n] over the first `depth` k to the `shape` = [m, n]
    sums at `sumIndices`, which count as zeros unless `keep`. Matrices are the last two dimensions
    of their memory. Operands are bf16, rhs in layout `pairs`; sums are f32. m is at most 32, n at
    most 16 or 32; `depth` is a multiple of 32. If n is 32, m may be any multiple of 32: tiles of
    rows are then multiplied by rhs one after another, and the loads of the next tile overlap with
    the last products of the current one. Terms are added in blocks of 32, in the same order for
    all m and n and for exchanged operands, so that the bits of a sum are the same. `far`: lhs is
    not staged and has to be prefetched.

    ```mlir
    tile.mma_staged %a[%row, %k], %b[%k, %column] onto %s[%row, %column]
      keep %again depth %depth shape [32, 32]
      : memref<128x544xbf16, #tile.shared<rows>>, memref<512x32xbf16, #tile.shared<pairs>>,
        memref<128x32xf32, #tile.shared<rows>>
    ```
    Made by contractions for targets with `matrixTiles`.
  }];
  let arguments = (ins Arg<AnyMemRef, "", [MemRead]>:$lhs, Variadic<Index>:$lhsIndices,
                       Arg<AnyMemRef, "", [MemRead]>:$rhs, Variadic<Index>:$rhsIndices,
                       Arg<AnyMemRef, "", [MemRead, MemWrite]>:$sums, Variadic<Index>:$sumIndices,
                       I1:$keep, Index:$depth, DenseI64ArrayAttr:$shape, UnitAttr:$far);
  let assemblyFormat = [{
    $lhs `[` $lhsIndices `]` (`far` $far^)? `,` $rhs `[` $rhsIndices `]`
    `onto` $sums `[` $sumIndices `]` `keep` $keep `depth` $depth `shape` $shape attr-dict
    `:` type($lhs) `,` type($rhs) `,` type($sums)
  }];
  let hasVerifier = 1;
}

def Tile_MmaAsyncOp : Tile_RingOp<"mma_async"> {
  let summary = "consumers: starts accumulator + lhs × rhs asynchronously (wgmma)";
  let description = [{
    As `tile.mma`, on operands in stages; the left one may also be in registers. The result replaces
    the accumulator. Until `tile.mma_wait` it may only be used as the accumulator of further
    products.
  }];
  let arguments = (ins Tile_Vector:$lhs, Tile_Vector:$rhs, Tile_Vector:$accumulator);
  let results = (outs Tile_Vector:$result);
  let assemblyFormat = [{
    $lhs `,` $rhs `,` $accumulator attr-dict
    `:` type($lhs) `,` type($rhs) `,` type($accumulator) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Tile_MmaWaitOp : Tile_RingOp<"mma_wait"> {
  let summary = "consumers: waits for the products of a sum";
  let description = [{
    Waits until at most the last `pending` of all `tile.mma_async` are in flight; those of `sum` are
    not among them.
  }];
  let arguments = (ins Tile_Vector:$sum, DefaultValuedOptionalAttr<I64Attr, "0">:$pending);
  let results = (outs Tile_Vector:$result);
  let assemblyFormat = "$sum (`pending` $pending^)? attr-dict `:` type($sum) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_ReduceOp : Tile_Op<"reduce", [Pure]> {
  let summary = "reduces a tile along one dimension, which is removed";
  let description = [{
    [m, n] along 1 gives [m]; a rank-1 tile gives a rank-0 vector. The order is fixed by the
    target (a tree over lanes) and does not depend on data.
  }];
  let arguments = (ins Tile_Vector:$input, Tile_ReduceKindAttr:$kind, I64Attr:$dim);
  let results = (outs Tile_Vector:$result);
  let assemblyFormat = "$kind $input `dim` $dim attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_BroadcastOp : Tile_Op<"broadcast", [Pure]> {
  let summary = "broadcasts a tile: input dimension i becomes result dimension dims[i]";
  let arguments = (ins AnyType:$input, DenseI64ArrayAttr:$dims);
  let results = (outs Tile_Vector:$result);
  let assemblyFormat = "$input `dims` $dims attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_IotaOp : Tile_Op<"iota", [Pure]> {
  let summary = "makes a tile of start + index along `dim`, as i32";
  let arguments = (ins Index:$start, I64Attr:$dim);
  let results = (outs VectorOfAnyRankOf<[I32]>:$result);
  let assemblyFormat = "$start `dim` $dim attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def Tile_SliceOp : Tile_Op<"slice", [Pure]> {
  let summary = "extracts one of the equal tiles that a tile consists of";
  let description = [{
    Of a tile of rank 2, divided into tiles of the result's shape, the one in row `row` and column
    `column`. Loops with these induction variables carry `tile.unroll`, since registers have no
    addresses.
  }];
  let arguments = (ins Tile_Vector:$input, Index:$row, Index:$column);
  let results = (outs Tile_Vector:$result);
  let assemblyFormat = [{
    $input `[` $row `,` $column `]` attr-dict `:` type($input) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Tile_TransposeOp : Tile_Op<"transpose", [Pure]> {
  let summary = "swaps the two dimensions of a tile";
  let arguments = (ins Tile_Vector:$input);
  let results = (outs Tile_Vector:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}

#endif
