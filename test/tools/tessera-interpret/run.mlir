// REQUIRES: compiler
// Random inputs depend on the seed alone; results go out and come in again by name.
// RUN: tessera-interpret %s --function=scale --seed=3 --values | FileCheck %s --check-prefix=SCALE
// RUN: tessera-interpret %s --function=scale --seed=3 --outputs=%t.safetensors > %t.first
// RUN: tessera-interpret %s --function=scale --seed=3 > %t.second
// RUN: diff %t.first %t.second
// RUN: tessera-interpret %s --function=scale --seed=4 > %t.other
// RUN: not diff %t.first %t.other
// RUN: tessera-interpret %s --function=unscale --inputs=%t.safetensors --values | FileCheck %s --check-prefix=UNSCALE
// RUN: tessera-interpret %s --function=third --values | FileCheck %s --check-prefix=EXACT
// RUN: tessera-interpret %s --function=third --values --round | FileCheck %s --check-prefix=ROUND

// SCALE: wte.weight: tensor<3xf32> min {{.*}} max {{.*}} mean {{.*}} rms {{.*}} nan 0 hash {{[0-9a-f]+}}
// SCALE-NEXT: {{^}}  [[A:[-0-9.e]+]] [[B:[-0-9.e]+]] [[C:[-0-9.e]+]]{{$}}
// SCALE-NEXT: result1: tensor<2xi32> min 0 max {{[01]}}
func.func @scale(%x: tensor<3xf32>, %i: tensor<2xi32>) -> (tensor<3xf32> {graph.state = "wte.weight"}, tensor<2xi32>) {
  %two = graph.constant dense<2.0> : tensor<3xf32>
  %y = graph.mul %x, %two : tensor<3xf32>
  %zero = graph.constant dense<0> : tensor<2xi32>
  %m = graph.mul %i, %zero : tensor<2xi32>
  return %y, %m : tensor<3xf32>, tensor<2xi32>
}

// What was written as wte.weight and result1 is read by those names.
// UNSCALE: ones: tensor<3xf32> min 1 max 1
// UNSCALE: result1: tensor<2xi32> min 0 max 0
func.func @unscale(%y: tensor<3xf32> {graph.state = "wte.weight"}, %i: tensor<2xi32> {graph.input = "result1"})
    -> (tensor<3xf32> {graph.output = "ones"}, tensor<2xi32>) {
  %r = graph.div %y, %y : tensor<3xf32>
  return %r, %i : tensor<3xf32>, tensor<2xi32>
}

// EXACT: 0.33333333333333331
// ROUND: 0.333984375
func.func @third() -> tensor<bf16> {
  %one = graph.constant dense<1.0> : tensor<bf16>
  %three = graph.constant dense<3.0> : tensor<bf16>
  %r = graph.div %one, %three : tensor<bf16>
  return %r : tensor<bf16>
}
