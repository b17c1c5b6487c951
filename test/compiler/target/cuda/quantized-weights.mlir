// A product with weights as integers: one call of the device library for each stage, and words and scales by cp.async.
// REQUIRES: compiler
// RUN: tessera compile --from partition %s --mode artifact --target cuda:sm_80 --cache off -o %t.tsr
// RUN: tessera inspect %t.tsr --show=linear | FileCheck %s
// RUN: tessera inspect %t.tsr --show=linear_1 | FileCheck %s --check-prefix=FLOATS
// CHECK:      TESSERA_KERNEL(linear, TESSERA_ALONE(256), 4, 0) {
// CHECK:        using Tile64x32 = Fragments<64, 32, 4, 2>;
// CHECK:        float *[[PARTS:.*]] = reinterpret_cast<float *>(sharedMemory()
// CHECK:        const SharedTiles<bf16, 3, 16, 256> [[ROWS:.*]]{sharedMemory()
// CHECK:        const SharedTiles<int32_t, 3, 2, 512> [[WORDS:.*]]{sharedMemory()
// CHECK:        const SharedTiles<f16, 3, 2, 128> [[SCALES:.*]]{sharedMemory()
// CHECK:        stagePacked<kThreads>(rowsOf<2>([[ROWS]][{{.*}}], 0), x_ + {{.*}}, 512);
// CHECK:        stagePacked<kThreads>([[WORDS]][{{.*}}], q_
// CHECK:        stagePacked<kThreads>([[SCALES]][{{.*}}], s_
// CHECK:        waitCopies<1>();
// CHECK:        multiplyQuantized<Int4, 32, false, 4>([[ROWS]][{{.*}}], [[WORDS]][{{.*}}], [[SCALES]][{{.*}}], {{.*}});
// CHECK:        storeAligned({{.*}}, [[PARTS]], 32);
// CHECK:        sync();
// CHECK-COUNT-4: load<Tile64x32>([[PARTS]]
// FLOATS:     multiplyQuantized<E4m3, 128, false, 1>(
module attributes {
  tessera.phase = "partition",
  tessera.config = "{\"model_type\": \"none\", \"vocab_size\": 64}",
  tessera.recipe = "precision: {compute: bf16}\n"
} {
func.func @product(%x: tensor<2x512xbf16> {graph.input = "x"}, %q: tensor<4x64x16xi32> {graph.input = "q"},
                   %s: tensor<4x16x16xf16> {graph.input = "s"}) -> (tensor<2x64xf32> {graph.output = "y"}) {
  %w = graph.dequantize %q, %s bits 4 group 32 : tensor<4x64x16xi32>, tensor<4x16x16xf16> -> tensor<64x512xbf16>
  %y = graph.einsum "mk,nk->mn" %x, %w : (tensor<2x512xbf16>, tensor<64x512xbf16>) -> tensor<2x64xf32>
  return %y : tensor<2x64xf32>
}
func.func @floats(%x: tensor<40x512xf32> {graph.input = "x"}, %q: tensor<4x128x16xi32> {graph.input = "q"},
                  %s: tensor<4x4x16xf16> {graph.input = "s"}) -> (tensor<40x64xf32> {graph.output = "y"}) {
  %w = graph.dequantize %q, %s bits 8 group 128 floats : tensor<4x128x16xi32>, tensor<4x4x16xf16> -> tensor<64x512xf32>
  %y = graph.einsum "mk,nk->mn" %x, %w : (tensor<40x512xf32>, tensor<64x512xf32>) -> tensor<40x64xf32>
  return %y : tensor<40x64xf32>
}
}
