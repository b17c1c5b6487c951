// The tile dialect: how one kernel works. See README.md in this folder.
#ifndef TESSERA_TILE_DIALECT
#define TESSERA_TILE_DIALECT

include "mlir/IR/OpBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/AttrTypeBase.td"

def Tile_Dialect : Dialect {
  let name = "tile";
  let cppNamespace = "::tessera::tile";
  let summary = "how one kernel works: blocks over tiles in three memory spaces";
  let description = [{
    A kernel is a grid of independent blocks. Inside a block, register tiles are
    builtin vectors (`vector<8x32xf32>`), so that arith and math are the elementwise
    ops; memory is builtin memrefs, global by default, `#tile.shared` where a block
    keeps a staged copy; loops and branches are scf. This dialect adds what those
    lack: moving tiles, multiplying them, and launching.
  }];
  let extraClassDeclaration = [{
    /// On an scf.for: fully unrolled.
    static constexpr ::llvm::StringLiteral kUnrollAttr = "tile.unroll";
    /// On a graph.cluster: the plan of its kernel, e.g. a ContractionPlanAttr.
    static constexpr ::llvm::StringLiteral kPlanAttr = "tile.plan";
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect",
    "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
}

class Tile_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let genSpecializedAttr = 0;
  let cppNamespace = "::tessera::tile";
}

def Tile_ReduceKind : Tile_Enum<"ReduceKind", "what a reduction accumulates", [
  I32EnumAttrCase<"sum", 0>, I32EnumAttrCase<"max", 1>, I32EnumAttrCase<"min", 2>]>;
def Tile_ReduceKindAttr : EnumAttr<Tile_Dialect, Tile_ReduceKind, "reduce_kind">;

def Tile_Access : Tile_Enum<"Access", "what a kernel does to a buffer", [
  I32EnumAttrCase<"read", 0>, I32EnumAttrCase<"write", 1>, I32EnumAttrCase<"read_write", 2>]>;
def Tile_AccessAttr : EnumAttr<Tile_Dialect, Tile_Access, "access">;

def Tile_Skeleton : Tile_Enum<"Skeleton", "the skeleton that a kernel was built from", [
  I32EnumAttrCase<"elementwise", 0>, I32EnumAttrCase<"row", 1>, I32EnumAttrCase<"column", 2>,
  I32EnumAttrCase<"contraction", 3>, I32EnumAttrCase<"attention", 4>,
  I32EnumAttrCase<"attention_grad", 5>, I32EnumAttrCase<"gather", 6>,
  I32EnumAttrCase<"scatter", 7>, I32EnumAttrCase<"reduce_all", 8>,
  I32EnumAttrCase<"paged_attention", 9>, I32EnumAttrCase<"grouped", 10>,
  I32EnumAttrCase<"sample", 11>]>;
def Tile_SkeletonAttr : EnumAttr<Tile_Dialect, Tile_Skeleton, "skeleton">;

def Tile_Turn : Tile_Enum<"Turn", "whether a warpgroup waits for its turn or passes it on", [
  I32EnumAttrCase<"take", 0>, I32EnumAttrCase<"pass", 1>]>;
def Tile_TurnAttr : EnumAttr<Tile_Dialect, Tile_Turn, "turn">;

// How a staged copy is laid out in shared memory. Indices stay logical; the
// layout maps them to bytes.
def Tile_Layout : Tile_Enum<"Layout", "the order of a staged tile's elements", [
  I32EnumAttrCase<"rows", 0>,    // row-major
  // [..., k, n] stored as [..., k/2, n, 2]: operands of two-way dot products (bf16)
  I32EnumAttrCase<"pairs", 1>,
  // row-major, chunks of 16 bytes permuted within a row by its number: operands of tensor cores
  I32EnumAttrCase<"swizzled", 2>]>;

class Tile_Attr<string name, string mnemonic_> : AttrDef<Tile_Dialect, name> {
  let mnemonic = mnemonic_;
}

def Tile_SharedAttr : Tile_Attr<"Shared", "shared"> {
  let summary = "memory space of one block: GPU shared memory or a CPU thread's scratch in cache";
  let parameters = (ins DefaultValuedParameter<"::tessera::tile::Layout",
                                               "::tessera::tile::Layout::rows">:$layout);
  let assemblyFormat = "(`<` $layout^ `>`)?";
}

def Tile_Engine : Tile_Enum<"Engine", "what multiplies in a kernel", [
  I32EnumAttrCase<"vector", 0>,      // vector registers: FMA, dot products
  I32EnumAttrCase<"matrix", 1>,      // AMX on targets that have it, vector registers elsewhere
  I32EnumAttrCase<"tensor_core", 2>, // mma.sync
  I32EnumAttrCase<"warpgroup", 3>,   // wgmma
  I32EnumAttrCase<"warp_specialized", 4>]>; // wgmma, fed by a producer warpgroup
def Tile_OperandSource : Tile_Enum<"OperandSource",
    "where the kernel of a contraction reads an operand", [
  I32EnumAttrCase<"memory", 0>,      // in place, or staged by the block
  I32EnumAttrCase<"packed", 1>,      // packed by a launch before
  I32EnumAttrCase<"integers", 2>,    // quantized to two bytes by a launch before
  I32EnumAttrCase<"streamed", 3>,    // in place, each element once: few rows
  I32EnumAttrCase<"bytes", 4>]>;     // quantized to one byte by a launch before

def Tile_ContractionPlanAttr : Tile_Attr<"ContractionPlan", "contraction_plan"> {
  let summary = "the kernel of a contraction: engine, operand sources and the tile of a block";
  let description = [{
    `plan-kernels` writes it on a cluster as `tile.plan`; `emit-kernels` follows it. Without it
    `emit-kernels` makes the same choice. `tile` is [rows, columns] of the result.
  }];
  let parameters = (ins "::tessera::tile::Engine":$engine, "::tessera::tile::OperandSource":$lhs,
    "::tessera::tile::OperandSource":$rhs, "int64_t":$rows, "int64_t":$columns);
  let assemblyFormat = [{
    `<` $engine `,` `lhs` `=` $lhs `,` `rhs` `=` $rhs `,` `tile` `=` `[` $rows `,` $columns `]` `>`
  }];
  let genVerifyDecl = 1;
}

def Tile_AttentionPlanAttr : Tile_Attr<"AttentionPlan", "attention_plan"> {
  let summary = "the kernel of an attention: engine, tile of scores, split of keys";
  let description = [{
    As `contraction_plan`, on a cluster of attention, of paged attention, or, for CPUs, of
    attention's gradient. `tile` is [queries, keys]: a block has a tile of queries and walks over
    tiles of keys. `split` is the number of keys of one block in decode on a GPU, a second launch
    combines their sums; 0: a block walks over all keys. With `ping_pong` the consumers of a
    warp-specialized kernel alternate on the tensor cores.
  }];
  let parameters = (ins "::tessera::tile::Engine":$engine, "int64_t":$queries, "int64_t":$keys,
    DefaultValuedParameter<"int64_t", "0">:$split,
    DefaultValuedParameter<"bool", "false">:$ping_pong);
  let assemblyFormat = [{
    `<` $engine `,` `tile` `=` `[` $queries `,` $keys `]` (`,` struct($split, $ping_pong)^)? `>`
  }];
  let genVerifyDecl = 1;
}

def Tile_AttentionGradPlanAttr : Tile_Attr<"AttentionGradPlan", "attention_grad_plan"> {
  let summary = "the kernels of attention's gradient on a GPU: engine and tiles of scores";
  let description = [{
    Each tile is [queries, keys]. In the kernel of `dkv`, which computes dK and dV, a block has a
    tile of keys and walks over queries; in that of `dq` it is the other way round. If `separate`,
    dK and dV have a kernel each.
  }];
  let parameters = (ins "::tessera::tile::Engine":$engine, "int64_t":$dkv_queries,
    "int64_t":$dkv_keys, "int64_t":$dq_queries, "int64_t":$dq_keys,
    DefaultValuedParameter<"bool", "false">:$separate);
  let assemblyFormat = [{
    `<` $engine `,` `dkv` `=` `[` $dkv_queries `,` $dkv_keys `]`
    `,` `dq` `=` `[` $dq_queries `,` $dq_keys `]` (`,` struct($separate)^)? `>`
  }];
  let genVerifyDecl = 1;
}

def Tile_RingType : TypeDef<Tile_Dialect, "Ring"> {
  let mnemonic = "ring";
  let summary = "a ring of shared-memory stages for software pipelining";
  let description = [{
    Each stage has two barriers: full and empty. `consumers` is the number of warpgroups that
    release a stage.
  }];
  let parameters = (ins "int64_t":$stages, "int64_t":$consumers);
  let assemblyFormat = "`<` $stages `stages` `,` $consumers `consumers` `>`";
  let genVerifyDecl = 1;
}

def Tile_GemmAttr : Tile_Attr<"Gemm", "gemm"> {
  let summary = "describes a kernel that is a plain GEMM, so that a library may replace it";
  let description = [{
    result[b] = lhs[b] × rhs[b], or += if it accumulates, and nothing else: a library's GEMM
    computes the same. `sizes` are [m, n, k, batches]. Each operand is [buffer, offset, stride
    along the rows of lhs and result or the columns of rhs, stride along k or the columns of the
    result, batch stride], in elements; `buffer` is an index among the kernel's buffers.
  }];
  let parameters = (ins ArrayRefParameter<"int64_t">:$sizes, ArrayRefParameter<"int64_t">:$lhs,
    ArrayRefParameter<"int64_t">:$rhs, ArrayRefParameter<"int64_t">:$result, "bool":$accumulates);
  let assemblyFormat = [{
    `<` `[` $sizes `]` `lhs` `[` $lhs `]` `rhs` `[` $rhs `]` `result` `[` $result `]`
    `accumulates` `=` $accumulates `>`
  }];
  let genVerifyDecl = 1;
}

#endif
