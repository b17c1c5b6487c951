// A variant that fails a gate is dropped, the others stay: here the compiler is
// made to say that those with tiles of 64 columns spill.
// REQUIRES: compiler, nvcc
// RUN: rm -rf %t && mkdir -p %t
// RUN: cp %S/Inputs/spilling-nvcc.sh %t/nvcc && chmod +x %t/nvcc
// RUN: tessera compile --from partition %s --mode artifact --target cuda:sm_80 --no-emulate --cache off -o %t/all.tsr
// RUN: tessera inspect %t/all.tsr --kernels --program wide | FileCheck %s --check-prefix=WIDE
// WIDE: or {{.*}} linear_64x64: a variant of it
// RUN: env CUDACXX=%t/nvcc SPILLING=_64x64 tessera compile --from partition %s --mode artifact --target cuda:sm_80 --no-emulate --cache off -o %t/some.tsr
// RUN: tessera inspect %t/some.tsr --kernels --program wide | FileCheck %s --check-prefix=NONE --implicit-check-not=linear_64x64
// NONE: linear: einsum
// RUN: tessera inspect %t/some.tsr --kernels --program narrow | FileCheck %s --check-prefix=NARROW
// NARROW: or {{.*}} linear_1_128x128: a variant of it

// Where the kernel itself spills, there is no code.
// RUN: not env CUDACXX=%t/nvcc SPILLING=tessera_linear tessera compile --from partition %s --mode artifact --target cuda:sm_80 --no-emulate --cache off -o %t/none.tsr 2>&1 | FileCheck %s --check-prefix=SPILLS
// SPILLS: kernel linear{{.*}} spills 48 bytes of registers
module attributes {
  tessera.phase = "partition",
  tessera.config = "{\"model_type\": \"none\", \"vocab_size\": 64}",
  tessera.recipe = "precision: {compute: bf16}\n"
} {
func.func @wide(%x: tensor<2048x256xbf16> {graph.input = "x"}, %w: tensor<2048x256xbf16> {graph.input = "w"})
    -> (tensor<2048x2048xbf16> {graph.output = "y"}) {
  %y = graph.einsum "mk,nk->mn" %x, %w : (tensor<2048x256xbf16>, tensor<2048x256xbf16>) -> tensor<2048x2048xbf16>
  return %y : tensor<2048x2048xbf16>
}
func.func @narrow(%x: tensor<512x1024xbf16> {graph.input = "x"}, %w: tensor<512x1024xbf16> {graph.input = "w"})
    -> (tensor<512x512xbf16> {graph.output = "y"}) {
  %y = graph.einsum "mk,nk->mn" %x, %w : (tensor<512x1024xbf16>, tensor<512x1024xbf16>) -> tensor<512x512xbf16>
  return %y : tensor<512x512xbf16>
}
}
