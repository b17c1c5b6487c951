#include "test/passes/kernels/KernelCases.h"
#include <cmath>

namespace tessera::testing {

static const std::vector<KernelCase> cases = {
    {"FlatChain", R"(
func.func @main(%x: tensor<3x37xf32>, %y: tensor<3x37xf32>, %s: tensor<f32>) -> (tensor<3x37xf32>, tensor<3x37xf32>) {
  %b = graph.broadcast %s dims [] : tensor<f32> -> tensor<3x37xf32>
  %a = graph.add %x, %y : tensor<3x37xf32>
  %c = graph.mul %a, %b : tensor<3x37xf32>
  %d = graph.tanh %c : tensor<3x37xf32>
  return %a, %d : tensor<3x37xf32>, tensor<3x37xf32>
})",
     -2, 2, 1e-6},
    {"FlatLong", R"(
func.func @main(%x: tensor<50001xf32>) -> tensor<50001xbf16> {
  %g = graph.gelu %x tanh : tensor<50001xf32>
  %r = graph.convert %g : tensor<50001xf32> -> tensor<50001xbf16>
  return %r : tensor<50001xbf16>
})",
     -3, 3, 5e-3},
    {"ScalarMath", R"(
func.func @main(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  %a = graph.mul %x, %y : tensor<f32>
  %b = graph.exp %a : tensor<f32>
  %c = graph.rsqrt %b : tensor<f32>
  return %c : tensor<f32>
})",
     -2, 2, 1e-6},
    {"BiasOverRows", R"(
func.func @main(%x: tensor<5x3x17xf32>, %b: tensor<17xf32>) -> tensor<5x3x17xf32> {
  %w = graph.broadcast %b dims [2] : tensor<17xf32> -> tensor<5x3x17xf32>
  %a = graph.add %x, %w : tensor<5x3x17xf32>
  return %a : tensor<5x3x17xf32>
})",
     -2, 2, 1e-6},
    {"LongRowsWithBias", R"(
func.func @main(%x: tensor<2x40003xf32>, %b: tensor<40003xf32>) -> tensor<2x40003xf32> {
  %w = graph.broadcast %b dims [1] : tensor<40003xf32> -> tensor<2x40003xf32>
  %a = graph.add %x, %w : tensor<2x40003xf32>
  return %a : tensor<2x40003xf32>
})",
     -2, 2, 1e-6},
    {"TransposeStored", R"(
func.func @main(%x: tensor<3x5x33xf32>) -> tensor<33x3x5xf32> {
  %t = graph.transpose %x [2, 0, 1] : tensor<3x5x33xf32> -> tensor<33x3x5xf32>
  return %t : tensor<33x3x5xf32>
})",
     -2, 2, 0},
    {"TransposeReshapeAdd", R"(
func.func @main(%x: tensor<2x4x3x8xf32>, %y: tensor<2x3x32xf32>) -> tensor<2x3x32xf32> {
  %n = graph.neg %x : tensor<2x4x3x8xf32>
  %t = graph.transpose %n [0, 2, 1, 3] : tensor<2x4x3x8xf32> -> tensor<2x3x4x8xf32>
  %r = graph.reshape %t : tensor<2x3x4x8xf32> -> tensor<2x3x32xf32>
  %a = graph.add %r, %y : tensor<2x3x32xf32>
  return %a : tensor<2x3x32xf32>
})",
     -2, 2, 1e-6},
    {"SliceOfQkv", R"(
func.func @main(%x: tensor<7x48xf32>) -> (tensor<7x16xf32>, tensor<7x16xf32>) {
  %q = graph.slice %x [0, 0] : tensor<7x48xf32> -> tensor<7x16xf32>
  %k = graph.slice %x [0, 16] : tensor<7x48xf32> -> tensor<7x16xf32>
  %m = graph.mul %q, %k : tensor<7x16xf32>
  return %m, %k : tensor<7x16xf32>, tensor<7x16xf32>
})",
     -2, 2, 1e-6},
    {"Rope", R"(
func.func @main(%x: tensor<2x9x3x8xf32>) -> tensor<2x9x3x8xf32> {
  %y = graph.rope %x {frequencies = array<f64: 1.0, 0.1, 0.01, 0.001>, scaling = 1.5 : f64} : tensor<2x9x3x8xf32>
  return %y : tensor<2x9x3x8xf32>
})",
     -2, 2, 2e-6},
    {"Tables", R"(
func.func @main(%x: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<5xi1>, tensor<3xbf16>, tensor<70xi64>) {
  %t = graph.constant dense<[[1.0, 2.0, 3.0], [-1.0, 0.5, 0.25]]> : tensor<2x3xf32>
  %a = graph.mul %x, %t : tensor<2x3xf32>
  %b = graph.constant dense<[true, false, true, true, false]> : tensor<5xi1>
  %c = graph.constant dense<[1.5, -2.0, 0.0]> : tensor<3xbf16>
  %d = graph.constant dense<7> : tensor<70xi64>
  return %a, %b, %c, %d : tensor<2x3xf32>, tensor<5xi1>, tensor<3xbf16>, tensor<70xi64>
})",
     -2, 2, 1e-7},
    {"ConcatPad", R"(
func.func @main(%x: tensor<3x5xf32>, %y: tensor<3x4xf32>) -> (tensor<3x9xf32>, tensor<5x8xf32>) {
  %n = graph.neg %y : tensor<3x4xf32>
  %c = graph.concat %x, %n dim 1 : (tensor<3x5xf32>, tensor<3x4xf32>) -> tensor<3x9xf32>
  %p = graph.pad %x low [1, 2] : tensor<3x5xf32> -> tensor<5x8xf32>
  return %c, %p : tensor<3x9xf32>, tensor<5x8xf32>
})",
     -2, 2, 0},
    {"IotaCompareSelect", R"(
func.func @main(%x: tensor<6x20xf32>, %t: tensor<6xi32>) -> tensor<6x20xf32> {
  %i = graph.iota dim 1 : tensor<6x20xi32>
  %b = graph.broadcast %t dims [0] : tensor<6xi32> -> tensor<6x20xi32>
  %c = graph.compare %i lt %b : tensor<6x20xi32> -> tensor<6x20xi1>
  %z = graph.constant dense<-1.0> : tensor<6x20xf32>
  %s = graph.select %c, %x, %z : tensor<6x20xi1>, tensor<6x20xf32>
  return %s : tensor<6x20xf32>
})",
     0, 20, 0},
    {"StoredBooleans", R"(
func.func @main(%x: tensor<6x21xf32>, %y: tensor<6x21xf32>) -> (tensor<6x21xi1>, tensor<21x6xf32>) {
  %c = graph.compare %x gt %y : tensor<6x21xf32> -> tensor<6x21xi1>
  %t = graph.transpose %c [1, 0] : tensor<6x21xi1> -> tensor<21x6xi1>
  %f = graph.convert %t : tensor<21x6xi1> -> tensor<21x6xf32>
  return %c, %f : tensor<6x21xi1>, tensor<21x6xf32>
})",
     -1, 1, 0},
    {"Integers", R"(
func.func @main(%x: tensor<70xi32>, %y: tensor<70xi64>) -> (tensor<70xi64>, tensor<70xi8>) {
  %w = graph.convert %x : tensor<70xi32> -> tensor<70xi64>
  %m = graph.mul %w, %y : tensor<70xi64>
  %n = graph.convert %m : tensor<70xi64> -> tensor<70xi8>
  return %m, %n : tensor<70xi64>, tensor<70xi8>
})",
     -100, 100, 0},
    {"RandomUniform", R"(
func.func @main(%seed: tensor<i64>, %step: tensor<i64>, %offset: tensor<i64>) -> tensor<6x7xf32> {
  %r = graph.random uniform stream 7 seed %seed step %step offset %offset : tensor<i64>, tensor<i64>, tensor<i64> -> tensor<6x7xf32>
  return %r : tensor<6x7xf32>
})",
     0, 1000000, 0},
    {"RandomNormal", R"(
func.func @main(%seed: tensor<i64>, %step: tensor<i32>) -> tensor<300xf32> {
  %r = graph.random normal stream 3 seed %seed step %step : tensor<i64>, tensor<i32> -> tensor<300xf32>
  return %r : tensor<300xf32>
})",
     0, 1000000, 1e-6},
    {"RandomGroups", R"(
func.func @main(%seed: tensor<i64>, %step: tensor<i64>, %offset: tensor<i64>) -> (tensor<6x132xf32>, tensor<6x132xf32>, tensor<3x37x8xf32>) {
  %r = graph.random uniform stream 7 seed %seed step %step offset %offset : tensor<i64>, tensor<i64>, tensor<i64> -> tensor<6x132xf32>
  %n = graph.random normal stream 8 seed %seed step %step : tensor<i64>, tensor<i64> -> tensor<6x132xf32>
  %u = graph.random normal stream 9 seed %seed step %step offset %offset : tensor<i64>, tensor<i64>, tensor<i64> -> tensor<3x8x37xf32>
  %t = graph.transpose %u [0, 2, 1] : tensor<3x8x37xf32> -> tensor<3x37x8xf32>
  return %r, %n, %t : tensor<6x132xf32>, tensor<6x132xf32>, tensor<3x37x8xf32>
})",
     0, 1000000, 1e-6},
    {"Dropout", R"(
func.func @main(%x: tensor<4x50xf32>, %seed: tensor<i64>, %step: tensor<i64>) -> tensor<4x50xf32> {
  %r = graph.dropout %x rate 0.3 stream 5 seed %seed step %step : tensor<4x50xf32>, tensor<i64>, tensor<i64>
  return %r : tensor<4x50xf32>
})",
     1, 1000, 1e-6},
    {"Softmax", R"(
func.func @main(%x: tensor<7x133xf32>) -> tensor<7x133xf32> {
  %y = graph.softmax %x : tensor<7x133xf32>
  return %y : tensor<7x133xf32>
})",
     -5, 5, 1e-6},
    {"SoftmaxLong", R"(
func.func @main(%x: tensor<3x50257xf32>) -> tensor<3x50257xbf16> {
  %y = graph.softmax %x : tensor<3x50257xf32>
  %z = graph.convert %y : tensor<3x50257xf32> -> tensor<3x50257xbf16>
  return %z : tensor<3x50257xbf16>
})",
     -5, 5, 5e-3},
    // Maxima that grow along a row, after tiles that are masked; a masked row.
    {"SoftmaxLongMasked", R"(
func.func @main(%x: tensor<3x50257xf32>) -> tensor<3x50257xf32> {
  %y = graph.softmax %x : tensor<3x50257xf32>
  return %y : tensor<3x50257xf32>
})",
     -5, 5, 1e-6,
     [](std::vector<interpreter::Tensor> &inputs) {
       for (int64_t i = 0; i < 50257; ++i) {
         double *x = &inputs[0].data[i];
         x[0] = i < 30000 ? -HUGE_VAL : float(x[0] + i * 1e-3);
         x[50257] = i < 40000 ? float(x[50257] - i * 1e-3) : -HUGE_VAL;
         x[2 * 50257] = -HUGE_VAL;
       }
     }},
    {"ResidualLayerNorm", R"(
func.func @main(%x: tensor<2x5x96xbf16>, %r: tensor<2x5x96xbf16>, %w: tensor<96xf32>, %b: tensor<96xf32>) -> (tensor<2x5x96xbf16>, tensor<2x5x96xbf16>) {
  %s = graph.add %x, %r : tensor<2x5x96xbf16>
  %y = graph.layer_norm %s, %w, %b eps 1.0e-5 : tensor<2x5x96xbf16>, tensor<96xf32>, tensor<96xf32>
  return %s, %y : tensor<2x5x96xbf16>, tensor<2x5x96xbf16>
})",
     -2, 2, 1e-2},
    {"RmsNorm", R"(
func.func @main(%x: tensor<11x17xf32>, %w: tensor<17xf32>) -> tensor<11x17xf32> {
  %y = graph.rms_norm %x, %w eps 1.0e-6 : tensor<11x17xf32>, tensor<17xf32>
  return %y : tensor<11x17xf32>
})",
     -2, 2, 2e-6},
    {"HeadNormThenRope", R"(
func.func @main(%x: tensor<2x5x24xf32>, %w: tensor<8xf32>) -> tensor<2x5x3x8xf32> {
  %h = graph.reshape %x : tensor<2x5x24xf32> -> tensor<2x5x3x8xf32>
  %n = graph.rms_norm %h, %w eps 1.0e-6 : tensor<2x5x3x8xf32>, tensor<8xf32>
  %y = graph.rope %n {frequencies = array<f64: 1.0, 0.1, 0.01, 0.001>} : tensor<2x5x3x8xf32>
  return %y : tensor<2x5x3x8xf32>
})",
     -2, 2, 2e-6},
    {"RowMaxMin", R"(
func.func @main(%x: tensor<9x70xf32>, %i: tensor<9x70xi32>) -> (tensor<9xf32>, tensor<9xf32>, tensor<9xi32>) {
  %a = graph.reduce %x max dims [1] : tensor<9x70xf32> -> tensor<9xf32>
  %b = graph.reduce %x min dims [1] : tensor<9x70xf32> -> tensor<9xf32>
  %c = graph.reduce %i max dims [1] : tensor<9x70xi32> -> tensor<9xi32>
  return %a, %b, %c : tensor<9xf32>, tensor<9xf32>, tensor<9xi32>
})",
     -50, 50, 0},
    {"NormBackward", R"(
func.func @main(%x: tensor<37x80xf32>, %dy: tensor<37x80xf32>, %w: tensor<80xf32>) -> (tensor<37x80xf32>, tensor<80xf32>, tensor<80xf32>) {
  %s = graph.reduce %x sum dims [1] : tensor<37x80xf32> -> tensor<37xf32>
  %k = graph.constant dense<0.0125> : tensor<37xf32>
  %m = graph.mul %s, %k : tensor<37xf32>
  %mb = graph.broadcast %m dims [0] : tensor<37xf32> -> tensor<37x80xf32>
  %c = graph.sub %x, %mb : tensor<37x80xf32>
  %q = graph.mul %c, %c : tensor<37x80xf32>
  %v = graph.reduce %q sum dims [1] : tensor<37x80xf32> -> tensor<37xf32>
  %vm = graph.mul %v, %k : tensor<37xf32>
  %r = graph.rsqrt %vm : tensor<37xf32>
  %rb = graph.broadcast %r dims [0] : tensor<37xf32> -> tensor<37x80xf32>
  %h = graph.mul %c, %rb : tensor<37x80xf32>
  %p = graph.mul %dy, %h : tensor<37x80xf32>
  %dw = graph.reduce %p sum dims [0] : tensor<37x80xf32> -> tensor<80xf32>
  %db = graph.reduce %dy sum dims [0] : tensor<37x80xf32> -> tensor<80xf32>
  %wb = graph.broadcast %w dims [1] : tensor<80xf32> -> tensor<37x80xf32>
  %g = graph.mul %dy, %wb : tensor<37x80xf32>
  %gs = graph.reduce %g sum dims [1] : tensor<37x80xf32> -> tensor<37xf32>
  %gm = graph.mul %gs, %k : tensor<37xf32>
  %gmb = graph.broadcast %gm dims [0] : tensor<37xf32> -> tensor<37x80xf32>
  %gh = graph.mul %g, %h : tensor<37x80xf32>
  %ghs = graph.reduce %gh sum dims [1] : tensor<37x80xf32> -> tensor<37xf32>
  %ghm = graph.mul %ghs, %k : tensor<37xf32>
  %ghb = graph.broadcast %ghm dims [0] : tensor<37xf32> -> tensor<37x80xf32>
  %hh = graph.mul %h, %ghb : tensor<37x80xf32>
  %d0 = graph.sub %g, %gmb : tensor<37x80xf32>
  %d1 = graph.sub %d0, %hh : tensor<37x80xf32>
  %dx = graph.mul %d1, %rb : tensor<37x80xf32>
  return %dx, %dw, %db : tensor<37x80xf32>, tensor<80xf32>, tensor<80xf32>
})",
     -2, 2, 5e-6},
    {"ColumnsTall", R"(
func.func @main(%x: tensor<3x333x70xf32>) -> tensor<70xf32> {
  %s = graph.reduce %x sum dims [0, 1] : tensor<3x333x70xf32> -> tensor<70xf32>
  return %s : tensor<70xf32>
})",
     -2, 2, 1e-6},
    {"ColumnsTallWithAll", R"(
func.func @main(%x: tensor<2x170x700xbf16>, %y: tensor<2x170x700xf32>, %acc: tensor<700xf32>)
    -> (tensor<700xf32>, tensor<700xbf16>) {
  %w = graph.convert %x : tensor<2x170x700xbf16> -> tensor<2x170x700xf32>
  %m = graph.mul %w, %y : tensor<2x170x700xf32>
  %s = graph.reduce %m sum dims [0, 1] : tensor<2x170x700xf32> -> tensor<700xf32>
  %a = graph.add %acc, %s : tensor<700xf32>
  %t = graph.reduce %y sum dims [0, 1] : tensor<2x170x700xf32> -> tensor<700xf32>
  %b = graph.convert %t : tensor<700xf32> -> tensor<700xbf16>
  return %a, %b : tensor<700xf32>, tensor<700xbf16>
})",
     -2, 2, 5e-3},
    {"LeastIntegers", R"(
func.func @main(%x: tensor<3x70xi32>, %y: tensor<3x70xi64>, %z: tensor<3x70xf64>)
    -> (tensor<3xi32>, tensor<3xi64>, tensor<3xf64>) {
  %a = graph.reduce %x max dims [1] : tensor<3x70xi32> -> tensor<3xi32>
  %b = graph.reduce %y max dims [1] : tensor<3x70xi64> -> tensor<3xi64>
  %c = graph.reduce %z max dims [1] : tensor<3x70xf64> -> tensor<3xf64>
  return %a, %b, %c : tensor<3xi32>, tensor<3xi64>, tensor<3xf64>
})",
     -9, -2, 0},
    {"CalledAsCpp", R"(
func.func @main(%x: tensor<3x70xf32> loc("do"), %y: tensor<3x70xf32> loc("load")) -> tensor<3x70xf32> {
  %a = graph.mul %x, %y : tensor<3x70xf32>
  return %a : tensor<3x70xf32>
})",
     -2, 2, 1e-6},
    {"ColumnsTallOne", R"(
func.func @main(%x: tensor<4x900x3xf32>) -> (tensor<4x3xf32>, tensor<4x3xf32>) {
  %a = graph.reduce %x sum dims [1] : tensor<4x900x3xf32> -> tensor<4x3xf32>
  %b = graph.reduce %x max dims [1] : tensor<4x900x3xf32> -> tensor<4x3xf32>
  return %a, %b : tensor<4x3xf32>, tensor<4x3xf32>
})",
     -2, 2, 1e-6},
    {"ColumnsAccumulate", R"(
func.func @main(%x: tensor<5x130xbf16>, %acc: tensor<130xf32>) -> tensor<130xf32> {
  %w = graph.convert %x : tensor<5x130xbf16> -> tensor<5x130xf32>
  %s = graph.reduce %w sum dims [0] : tensor<5x130xf32> -> tensor<130xf32>
  %a = graph.add %acc, %s : tensor<130xf32>
  return %a : tensor<130xf32>
})",
     -2, 2, 1e-6},
    {"ReduceMiddle", R"(
func.func @main(%x: tensor<4x5x6x7xf32>) -> (tensor<5x7xf32>, tensor<5xf32>, tensor<4x6xf32>, tensor<4xf32>) {
  %a = graph.reduce %x sum dims [0, 2] : tensor<4x5x6x7xf32> -> tensor<5x7xf32>
  %b = graph.reduce %x sum dims [0, 2, 3] : tensor<4x5x6x7xf32> -> tensor<5xf32>
  %c = graph.reduce %x max dims [1, 3] : tensor<4x5x6x7xf32> -> tensor<4x6xf32>
  %d = graph.reduce %x sum dims [1, 2, 3] : tensor<4x5x6x7xf32> -> tensor<4xf32>
  return %a, %b, %c, %d : tensor<5x7xf32>, tensor<5xf32>, tensor<4x6xf32>, tensor<4xf32>
})",
     -2, 2, 1e-6},
    {"ReduceTransposed", R"(
func.func @main(%x: tensor<6x9x5xf32>) -> tensor<6x5xf32> {
  %t = graph.transpose %x [0, 2, 1] : tensor<6x9x5xf32> -> tensor<6x5x9xf32>
  %s = graph.reduce %t sum dims [2] : tensor<6x5x9xf32> -> tensor<6x5xf32>
  return %s : tensor<6x5xf32>
})",
     -2, 2, 1e-6},
    {"SumOfSquares", R"(
func.func @main(%x: tensor<40000xf32>, %y: tensor<123xf32>) -> (tensor<f32>, tensor<f32>) {
  %a = graph.mul %x, %x : tensor<40000xf32>
  %s = graph.reduce %a sum dims [0] : tensor<40000xf32> -> tensor<f32>
  %b = graph.mul %y, %y : tensor<123xf32>
  %t = graph.reduce %b sum dims [0] : tensor<123xf32> -> tensor<f32>
  return %s, %t : tensor<f32>, tensor<f32>
})",
     -2, 2, 1e-6},
    {"ReduceAllStrided", R"(
func.func @main(%x: tensor<40x30xf32>, %b: tensor<30xf32>) -> (tensor<f32>, tensor<f32>) {
  %w = graph.broadcast %b dims [1] : tensor<30xf32> -> tensor<40x30xf32>
  %a = graph.mul %x, %w : tensor<40x30xf32>
  %s = graph.reduce %a sum dims [0, 1] : tensor<40x30xf32> -> tensor<f32>
  %m = graph.reduce %x max dims [0, 1] : tensor<40x30xf32> -> tensor<f32>
  return %s, %m : tensor<f32>, tensor<f32>
})",
     -2, 2, 1e-6},
    {"CountTargets", R"(
func.func @main(%t: tensor<3x70xi32>) -> tensor<i64> {
  %k = graph.constant dense<5> : tensor<3x70xi32>
  %c = graph.compare %t ne %k : tensor<3x70xi32> -> tensor<3x70xi1>
  %i = graph.convert %c : tensor<3x70xi1> -> tensor<3x70xi64>
  %s = graph.reduce %i sum dims [0, 1] : tensor<3x70xi64> -> tensor<i64>
  return %s : tensor<i64>
})",
     0, 9, 0},
    {"EmbeddingPlusPositions", R"(
func.func @main(%table: tensor<20x33xf32>, %ids: tensor<3x7xi32>, %p: tensor<10x33xf32>) -> tensor<3x7x33xf32> {
  %e = graph.embedding %table, %ids : (tensor<20x33xf32>, tensor<3x7xi32>) -> tensor<3x7x33xf32>
  %s = graph.slice %p [0, 0] : tensor<10x33xf32> -> tensor<7x33xf32>
  %b = graph.broadcast %s dims [1, 2] : tensor<7x33xf32> -> tensor<3x7x33xf32>
  %a = graph.add %e, %b : tensor<3x7x33xf32>
  return %a : tensor<3x7x33xf32>
})",
     0, 19.99, 1e-6},
    {"EmbeddingThenNorm", R"(
func.func @main(%table: tensor<20x33xf32>, %ids: tensor<21xi64>, %w: tensor<33xf32>) -> (tensor<21x33xf32>, tensor<21x33xf32>) {
  %e = graph.embedding %table, %ids : (tensor<20x33xf32>, tensor<21xi64>) -> tensor<21x33xf32>
  %n = graph.rms_norm %e, %w eps 1.0e-5 : tensor<21x33xf32>, tensor<33xf32>
  return %e, %n : tensor<21x33xf32>, tensor<21x33xf32>
})",
     0, 19.99, 2e-6},
    {"ScatterAdd", R"(
func.func @main(%base: tensor<50x20xf32>, %ids: tensor<3x31xi32>, %u: tensor<3x31x20xbf16>) -> tensor<50x20xf32> {
  %w = graph.convert %u : tensor<3x31x20xbf16> -> tensor<3x31x20xf32>
  %s = graph.scatter_add %w at %ids onto %base : tensor<3x31x20xf32>, tensor<3x31xi32>, tensor<50x20xf32>
  return %s : tensor<50x20xf32>
})",
     0, 49.99, 1e-6},
    {"AdamW", R"(
func.func @main(%p: tensor<30x40xf32>, %g: tensor<30x40xf32>, %m: tensor<30x40xf32>, %v: tensor<30x40xf32>,
                %q: tensor<77xf32>, %h: tensor<77xf32>, %n: tensor<77xf32>, %o: tensor<77xf32>, %lr: tensor<f32>)
    -> (tensor<30x40xf32>, tensor<30x40xf32>, tensor<30x40xf32>, tensor<77xf32>, tensor<77xf32>, tensor<77xf32>) {
  %c0 = graph.constant dense<0.9> : tensor<30x40xf32>
  %c1 = graph.constant dense<0.1> : tensor<30x40xf32>
  %e0 = graph.constant dense<1.0e-8> : tensor<30x40xf32>
  %l0 = graph.broadcast %lr dims [] : tensor<f32> -> tensor<30x40xf32>
  %m0 = graph.mul %m, %c0 : tensor<30x40xf32>
  %m1 = graph.mul %g, %c1 : tensor<30x40xf32>
  %m2 = graph.add %m0, %m1 : tensor<30x40xf32>
  %v0 = graph.mul %v, %c0 : tensor<30x40xf32>
  %g2 = graph.mul %g, %g : tensor<30x40xf32>
  %v1 = graph.mul %g2, %c1 : tensor<30x40xf32>
  %v2 = graph.add %v0, %v1 : tensor<30x40xf32>
  %s = graph.sqrt %v2 : tensor<30x40xf32>
  %se = graph.add %s, %e0 : tensor<30x40xf32>
  %u = graph.div %m2, %se : tensor<30x40xf32>
  %ul = graph.mul %u, %l0 : tensor<30x40xf32>
  %p2 = graph.sub %p, %ul : tensor<30x40xf32>
  %d0 = graph.constant dense<0.9> : tensor<77xf32>
  %d1 = graph.constant dense<0.1> : tensor<77xf32>
  %f0 = graph.constant dense<1.0e-8> : tensor<77xf32>
  %k0 = graph.broadcast %lr dims [] : tensor<f32> -> tensor<77xf32>
  %n0 = graph.mul %n, %d0 : tensor<77xf32>
  %n1 = graph.mul %h, %d1 : tensor<77xf32>
  %n2 = graph.add %n0, %n1 : tensor<77xf32>
  %o0 = graph.mul %o, %d0 : tensor<77xf32>
  %h2 = graph.mul %h, %h : tensor<77xf32>
  %o1 = graph.mul %h2, %d1 : tensor<77xf32>
  %o2 = graph.add %o0, %o1 : tensor<77xf32>
  %t = graph.sqrt %o2 : tensor<77xf32>
  %te = graph.add %t, %f0 : tensor<77xf32>
  %w = graph.div %n2, %te : tensor<77xf32>
  %wl = graph.mul %w, %k0 : tensor<77xf32>
  %q2 = graph.sub %q, %wl : tensor<77xf32>
  return %p2, %m2, %v2, %q2, %n2, %o2 : tensor<30x40xf32>, tensor<30x40xf32>, tensor<30x40xf32>, tensor<77xf32>, tensor<77xf32>, tensor<77xf32>
})",
     0.1, 2, 2e-6},
    {"LoopOverSlices", R"(
func.func @main(%x: tensor<4x6x5xf32>, %w: tensor<5xf32>) -> (tensor<4x6x5xf32>, tensor<5xf32>) {
  %z = graph.constant dense<0.0> : tensor<4x6x5xf32>
  %s = graph.constant dense<0.0> : tensor<5xf32>
  %r:2 = graph.loop 4 (%i, %all = %z, %sum = %s) : (tensor<4x6x5xf32>, tensor<5xf32>) {
    %a = graph.dynamic_slice %x[%i] : tensor<4x6x5xf32>, tensor<i32> -> tensor<6x5xf32>
    %b = graph.broadcast %w dims [1] : tensor<5xf32> -> tensor<6x5xf32>
    %m = graph.mul %a, %b : tensor<6x5xf32>
    %c = graph.reduce %m sum dims [0] : tensor<6x5xf32> -> tensor<5xf32>
    %t = graph.add %sum, %c : tensor<5xf32>
    %u = graph.dynamic_update %m into %all[%i] : tensor<6x5xf32>, tensor<i32> -> tensor<4x6x5xf32>
    graph.yield %u, %t : tensor<4x6x5xf32>, tensor<5xf32>
  }
  return %r#0, %r#1 : tensor<4x6x5xf32>, tensor<5xf32>
})",
     -2, 2, 1e-6},
    {"EmptyTensors", R"(
func.func @main(%x: tensor<0x5xf32>, %y: tensor<3x0xf32>) -> (tensor<0x5xf32>, tensor<5xf32>, tensor<3xf32>, tensor<f32>) {
  %n = graph.neg %x : tensor<0x5xf32>
  %c = graph.reduce %x sum dims [0] : tensor<0x5xf32> -> tensor<5xf32>
  %r = graph.reduce %y sum dims [1] : tensor<3x0xf32> -> tensor<3xf32>
  %a = graph.reduce %y sum dims [0, 1] : tensor<3x0xf32> -> tensor<f32>
  return %n, %c, %r, %a : tensor<0x5xf32>, tensor<5xf32>, tensor<3xf32>, tensor<f32>
})",
     -2, 2, 0},
};

const std::vector<KernelCase> &kernelCases() { return cases; }

} // namespace tessera::testing
