#ifndef TESSERA_CPU_PASSES
#define TESSERA_CPU_PASSES

include "mlir/Pass/PassBase.td"

def LowerTileToVector : Pass<"lower-tile-to-vector", "::mlir::ModuleOp"> {
  let summary = "lowers kernels to functions over machine vectors";
  let description = [{
    Splits every register tile into one-dimensional vectors of the target's `lanes`
    elements (a tile one column wide becomes scalars), and lowers tile ops to ops on
    these: `mma` to a sequence of FMAs or two-way dot products, loads to vector
    loads, transposes to shuffles, exp and other functions to polynomials.
    A kernel becomes a function with the kernel ABI that runs `@NAME.block` for
    each of its blocks; `tile.alloc` becomes an offset into the scratch argument.

    Postcondition: no op of the tile, math or memref dialects remains, except the math
    ops that are one instruction (fma, sqrt, floor, …); no vector has more than one dimension.

    ```mlir
    %a = tile.load %x[%block, %i] along [0, 1] : memref<8x64xf32>, vector<1x32xf32>
    %e = math.exp2 %a : vector<1x32xf32>
    ```
    becomes, for 16 lanes,
    ```mlir
    %p = llvm.getelementptr %x[%offset] : (!llvm.ptr, i64) -> !llvm.ptr, f32
    %a0 = llvm.load %p {alignment = 4 : i64} : !llvm.ptr -> vector<16xf32>
    %q = llvm.getelementptr %p[16] : (!llvm.ptr) -> !llvm.ptr, f32
    %a1 = llvm.load %q {alignment = 4 : i64} : !llvm.ptr -> vector<16xf32>
    %n0 = math.roundeven %a0 : vector<16xf32>
    ...
    ```
  }];
  let options = [Option<"target", "target", "std::string", "\"cpu:avx512\"",
    "a CPU target, such as cpu:avx2">];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::func::FuncDialect",
    "::mlir::arith::ArithDialect", "::mlir::math::MathDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
}

def LowerVectorToLlvm : Pass<"lower-vector-to-llvm", "::mlir::ModuleOp"> {
  let summary = "lowers functions over machine vectors to the LLVM dialect";
  let description = [{
    One conversion for the output of `lower-tile-to-vector`: structured control flow,
    arith, math, vector and func.
    Postcondition: every op is of the LLVM dialect.

    ```mlir
    %s = vector.splat %x : vector<16xf32>
    %y = arith.mulf %s, %v : vector<16xf32>
    ```
    becomes
    ```mlir
    %u = llvm.mlir.undef : vector<16xf32>
    %t = llvm.insertelement %x, %u[%zero : i32] : vector<16xf32>
    %s = llvm.shufflevector %t, %u [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] : vector<16xf32>
    %y = llvm.fmul %s, %v : vector<16xf32>
    ```
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::cf::ControlFlowDialect"];
}

#endif
