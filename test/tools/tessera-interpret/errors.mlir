// REQUIRES: compiler
// RUN: not tessera-interpret %s 2>&1 | FileCheck %s --check-prefix=WHICH
// RUN: not tessera-interpret %s --function=h 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not tessera-interpret %s --function=f --inputs=%t.nothing 2>&1 | FileCheck %s --check-prefix=FILE
// RUN: tessera-interpret %s --function=g --outputs=%t.safetensors
// RUN: not tessera-interpret %s --function=f --inputs=%t.safetensors 2>&1 | FileCheck %s --check-prefix=NAME
// RUN: not tessera-interpret %s --function=shape --inputs=%t.safetensors 2>&1 | FileCheck %s --check-prefix=SHAPE
// RUN: not tessera-interpret %s --function=g --outputs=%t.no/such/folder 2>&1 | FileCheck %s --check-prefix=WRITE
// RUN: echo "func.func @f() { return" > %t.mlir
// RUN: not tessera-interpret %t.mlir 2>&1 | FileCheck %s --check-prefix=PARSE
// RUN: not tessera-interpret %t.missing.mlir 2>&1 | FileCheck %s --check-prefix=MISSING
// RUN: not tessera-interpret %s --function=huge 2>&1 | FileCheck %s --check-prefix=HUGE

// WHICH: tessera-interpret: error: the module does not have exactly one public function; choose one with --function
// NONE: tessera-interpret: error: the module has no function @h
// FILE: tessera-interpret: error: cannot open '{{.*}}.nothing': No such file or directory
// NAME: error: {{.*}}.safetensors: has no tensor 'arg0', an argument of @f
// SHAPE: error: {{.*}}.safetensors: tensor 'y' has another shape than its argument, tensor<3xf32>
// WRITE: error: {{.*}}folder: cannot be written:
// PARSE: error:
// MISSING: error: {{.*}}.missing.mlir
// HUGE: error: an argument is not a tensor of static shape, or is too large for the interpreter
func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}
func.func @g() -> (tensor<2xf32> {graph.output = "y"}) {
  %y = graph.constant dense<1.0> : tensor<2xf32>
  return %y : tensor<2xf32>
}
func.func @shape(%x: tensor<3xf32> {graph.input = "y"}) -> tensor<3xf32> {
  return %x : tensor<3xf32>
}
func.func @huge(%x: tensor<99999999999xf32>) {
  return
}
