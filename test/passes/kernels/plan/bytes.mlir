// RUN: tessera-opt %s --plan-kernels="targets=cpu:amx,cpu:avx2 byte-rows print" -o %t 2>&1 | FileCheck %s
// RUN: FileCheck %s --check-prefix=PLAN --input-file=%t
// RUN: tessera-opt %s --plan-kernels="targets=cpu:amx print" -o /dev/null 2>&1 | FileCheck %s --check-prefix=AUTO
// RUN: tessera-opt %t --emit-kernels=targets=cpu:avx2 | FileCheck %s --check-prefix=AVX2
// RUN: tessera-opt %t --emit-kernels=targets=cpu:avx512 | FileCheck %s --check-prefix=VNNI
// RUN: not tessera-opt %s --plan-kernels="targets=cuda:sm_90a byte-rows" -o /dev/null 2>&1 | FileCheck %s --check-prefix=GPU
// Rows of bf16 by weights in super-blocks become bytes in a launch before, few and many; rows of f32 do not.

// CHECK: many {{.*}} vector bf16 bytes q4_K memory 128x64 128
// CHECK: floats {{.*}} f32 memory q4_K memory
// CHECK: few {{.*}} bf16 bytes q4_K streamed
// PLAN: tile.plan = #tile.contraction_plan<vector, lhs = bytes, rhs = memory, tile = [128, 64]>
// AUTO: many {{.*}} matrix bf16 packed q4_K memory
// AUTO: few {{.*}} bf16 integers q4_K streamed
// GPU: byte-rows: no kernel of GPUs multiplies rows as bytes

// Eight words of 4 bits are added in 16 bits.
// AVX2: tile.launch @byte_rows(
// AVX2: tile.launch @many(
// AVX2: tile.kernel @many(
// AVX2: tile.mma {{.*}} pairs : vector<6x1xi32>, vector<1x16xi32>, vector<6x16xi32>
// AVX2: tile.dot_pairs {{.*}} : vector<6x16xi32>
// AVX2: tile.kernel @few(
// AVX2: tile.mma {{.*}} pairs : vector<1x1xi32>, vector<1x16xi32>, vector<1x16xi32>
// VNNI: tile.kernel @many(
// VNNI: tile.mma {{.*}} : vector<12x1xi32>, vector<1x16xi32>, vector<12x16xi32>
// VNNI-NOT: {{ pairs :}}
// VNNI: tile.kernel @few(
// VNNI-NOT: {{ pairs :}}
// VNNI: tile.mma {{.*}} : vector<4x1xi32>, vector<1x16xi32>, vector<4x16xi32>
// VNNI: tile.dot_pairs {{.*}} : vector<4x16xi32>
func.func @f(%x: tensor<256x2048xbf16>, %y: tensor<256x2048xf32>, %z: tensor<16x2048xbf16>, %q: tensor<256x256x16xi32>, %s: tensor<256x40x16xi32>) -> (tensor<256x4096xf32>, tensor<256x4096xf32>, tensor<16x4096xf32>) {
  %0 = graph.cluster contraction "many"(%x, %q, %s) : (tensor<256x2048xbf16>, tensor<256x256x16xi32>, tensor<256x40x16xi32>) -> tensor<256x4096xf32> {
  ^bb0(%a: tensor<256x2048xbf16>, %b: tensor<256x256x16xi32>, %c: tensor<256x40x16xi32>):
    %d = graph.dequantize %b, %c bits 4 group 256 super_blocks : tensor<256x256x16xi32>, tensor<256x40x16xi32> -> tensor<4096x2048xbf16>
    %e = graph.einsum "mk,nk->mn" %a, %d : (tensor<256x2048xbf16>, tensor<4096x2048xbf16>) -> tensor<256x4096xf32>
    graph.yield %e : tensor<256x4096xf32>
  }
  %1 = graph.cluster contraction "floats"(%y, %q, %s) : (tensor<256x2048xf32>, tensor<256x256x16xi32>, tensor<256x40x16xi32>) -> tensor<256x4096xf32> {
  ^bb0(%a: tensor<256x2048xf32>, %b: tensor<256x256x16xi32>, %c: tensor<256x40x16xi32>):
    %d = graph.dequantize %b, %c bits 4 group 256 super_blocks : tensor<256x256x16xi32>, tensor<256x40x16xi32> -> tensor<4096x2048xf32>
    %e = graph.einsum "mk,nk->mn" %a, %d : (tensor<256x2048xf32>, tensor<4096x2048xf32>) -> tensor<256x4096xf32>
    graph.yield %e : tensor<256x4096xf32>
  }
  %2 = graph.cluster contraction "few"(%z, %q, %s) : (tensor<16x2048xbf16>, tensor<256x256x16xi32>, tensor<256x40x16xi32>) -> tensor<16x4096xf32> {
  ^bb0(%a: tensor<16x2048xbf16>, %b: tensor<256x256x16xi32>, %c: tensor<256x40x16xi32>):
    %d = graph.dequantize %b, %c bits 4 group 256 super_blocks : tensor<256x256x16xi32>, tensor<256x40x16xi32> -> tensor<4096x2048xbf16>
    %e = graph.einsum "mk,nk->mn" %a, %d : (tensor<16x2048xbf16>, tensor<4096x2048xbf16>) -> tensor<16x4096xf32>
    graph.yield %e : tensor<16x4096xf32>
  }
  return %0, %1, %2 : tensor<256x4096xf32>, tensor<256x4096xf32>, tensor<16x4096xf32>
}
