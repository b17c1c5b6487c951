// RUN: tessera-opt %s --split-input-file --verify-diagnostics
// One case for each branch of the verifier of graph.sample.

func.func @f(%l: tensor<2x4x24xf32>, %a: tensor<2x3xi32>, %t: tensor<2x8xi32>, %c: tensor<2x8x4xf32>, %o: tensor<2x2xf32>, %n: tensor<2x4xi32>) {
  // expected-error @+1 {{'graph.sample' op expects logits of rank 2}}
  %0 = graph.sample %l allowed %a change %t by %c options %o limits %n : tensor<2x4x24xf32>, tensor<2x3xi32>, tensor<2x8xi32>, tensor<2x8x4xf32>, tensor<2x2xf32>, tensor<2x4xi32> -> tensor<2xi32>
  return
}

// -----

func.func @f(%l: tensor<2x96xf32>, %a: tensor<6xi32>, %t: tensor<2x8xi32>, %c: tensor<2x8x4xf32>, %o: tensor<2x2xf32>, %n: tensor<2x4xi32>) {
  // expected-error @+1 {{'graph.sample' op expects allowed of rank 2}}
  %0 = graph.sample %l allowed %a change %t by %c options %o limits %n : tensor<2x96xf32>, tensor<6xi32>, tensor<2x8xi32>, tensor<2x8x4xf32>, tensor<2x2xf32>, tensor<2x4xi32> -> tensor<2xi32>
  return
}

// -----

func.func @f(%l: tensor<2x96xf32>, %a: tensor<2x3xi32>, %t: tensor<16xi32>, %c: tensor<2x8x4xf32>, %o: tensor<2x2xf32>, %n: tensor<2x4xi32>) {
  // expected-error @+1 {{'graph.sample' op expects changed of rank 2}}
  %0 = graph.sample %l allowed %a change %t by %c options %o limits %n : tensor<2x96xf32>, tensor<2x3xi32>, tensor<16xi32>, tensor<2x8x4xf32>, tensor<2x2xf32>, tensor<2x4xi32> -> tensor<2xi32>
  return
}

// -----

func.func @f(%l: tensor<2x0xf32>, %a: tensor<2x3xi32>, %t: tensor<2x8xi32>, %c: tensor<2x8x4xf32>, %o: tensor<2x2xf32>, %n: tensor<2x4xi32>) {
  // expected-error @+1 {{'graph.sample' op expects 1 to 8388607 logits a row, got 0}}
  %0 = graph.sample %l allowed %a change %t by %c options %o limits %n : tensor<2x0xf32>, tensor<2x3xi32>, tensor<2x8xi32>, tensor<2x8x4xf32>, tensor<2x2xf32>, tensor<2x4xi32> -> tensor<2xi32>
  return
}

// -----

func.func @f(%l: tensor<2x97xf32>, %a: tensor<2x3xi32>, %t: tensor<2x8xi32>, %c: tensor<2x8x4xf32>, %o: tensor<2x2xf32>, %n: tensor<2x4xi32>) {
  // expected-error @+1 {{'graph.sample' op expects allowed to have a bit for each of 97 tokens, got 3 words of 32 bits}}
  %0 = graph.sample %l allowed %a change %t by %c options %o limits %n : tensor<2x97xf32>, tensor<2x3xi32>, tensor<2x8xi32>, tensor<2x8x4xf32>, tensor<2x2xf32>, tensor<2x4xi32> -> tensor<2xi32>
  return
}

// -----

func.func @f(%l: tensor<2x96xf32>, %a: tensor<3x3xi32>, %t: tensor<2x8xi32>, %c: tensor<2x8x4xf32>, %o: tensor<2x2xf32>, %n: tensor<2x4xi32>) {
  // expected-error @+1 {{'graph.sample' op expects allowed}}
  %0 = graph.sample %l allowed %a change %t by %c options %o limits %n : tensor<2x96xf32>, tensor<3x3xi32>, tensor<2x8xi32>, tensor<2x8x4xf32>, tensor<2x2xf32>, tensor<2x4xi32> -> tensor<2xi32>
  return
}

// -----

func.func @f(%l: tensor<2x96xf32>, %a: tensor<2x3xi32>, %t: tensor<3x8xi32>, %c: tensor<2x8x4xf32>, %o: tensor<2x2xf32>, %n: tensor<2x4xi32>) {
  // expected-error @+1 {{'graph.sample' op expects changed}}
  %0 = graph.sample %l allowed %a change %t by %c options %o limits %n : tensor<2x96xf32>, tensor<2x3xi32>, tensor<3x8xi32>, tensor<2x8x4xf32>, tensor<2x2xf32>, tensor<2x4xi32> -> tensor<2xi32>
  return
}

// -----

func.func @f(%l: tensor<2x96xf32>, %a: tensor<2x3xi32>, %t: tensor<2x8xi32>, %c: tensor<2x8x3xf32>, %o: tensor<2x2xf32>, %n: tensor<2x4xi32>) {
  // expected-error @+1 {{'graph.sample' op expects changes}}
  %0 = graph.sample %l allowed %a change %t by %c options %o limits %n : tensor<2x96xf32>, tensor<2x3xi32>, tensor<2x8xi32>, tensor<2x8x3xf32>, tensor<2x2xf32>, tensor<2x4xi32> -> tensor<2xi32>
  return
}

// -----

func.func @f(%l: tensor<2x96xf32>, %a: tensor<2x3xi32>, %t: tensor<2x8xi32>, %c: tensor<2x8x4xf32>, %o: tensor<2x3xf32>, %n: tensor<2x4xi32>) {
  // expected-error @+1 {{'graph.sample' op expects options}}
  %0 = graph.sample %l allowed %a change %t by %c options %o limits %n : tensor<2x96xf32>, tensor<2x3xi32>, tensor<2x8xi32>, tensor<2x8x4xf32>, tensor<2x3xf32>, tensor<2x4xi32> -> tensor<2xi32>
  return
}

// -----

func.func @f(%l: tensor<2x96xf32>, %a: tensor<2x3xi32>, %t: tensor<2x8xi32>, %c: tensor<2x8x4xf32>, %o: tensor<2x2xf32>, %n: tensor<2x5xi32>) {
  // expected-error @+1 {{'graph.sample' op expects limits}}
  %0 = graph.sample %l allowed %a change %t by %c options %o limits %n : tensor<2x96xf32>, tensor<2x3xi32>, tensor<2x8xi32>, tensor<2x8x4xf32>, tensor<2x2xf32>, tensor<2x5xi32> -> tensor<2xi32>
  return
}

// -----

func.func @f(%l: tensor<2x96xf32>, %a: tensor<2x3xi32>, %t: tensor<2x8xi32>, %c: tensor<2x8x4xf32>, %o: tensor<2x2xf32>, %n: tensor<2x4xi32>) {
  // expected-error @+1 {{'graph.sample' op has result type 'tensor<3xi32>', expected 'tensor<2xi32>'}}
  %0 = graph.sample %l allowed %a change %t by %c options %o limits %n : tensor<2x96xf32>, tensor<2x3xi32>, tensor<2x8xi32>, tensor<2x8x4xf32>, tensor<2x2xf32>, tensor<2x4xi32> -> tensor<3xi32>
  return
}

// -----

func.func @f(%l: tensor<2x96xf32>, %a: tensor<2x3xi32>, %t: tensor<2x0xi32>, %c: tensor<2x0x4xf32>, %o: tensor<2x2xf32>, %n: tensor<2x4xi32>) {
  // expected-error @+1 {{'graph.sample' op expects room for a changed logit}}
  %0 = graph.sample %l allowed %a change %t by %c options %o limits %n : tensor<2x96xf32>, tensor<2x3xi32>, tensor<2x0xi32>, tensor<2x0x4xf32>, tensor<2x2xf32>, tensor<2x4xi32> -> tensor<2xi32>
  return
}

// -----

func.func @f(%l: tensor<2x8388608xf32>, %a: tensor<2x3xi32>, %t: tensor<2x8xi32>, %c: tensor<2x8x4xf32>, %o: tensor<2x2xf32>, %n: tensor<2x4xi32>) {
  // expected-error @+1 {{'graph.sample' op expects 1 to 8388607 logits a row, got 8388608}}
  %0 = graph.sample %l allowed %a change %t by %c options %o limits %n : tensor<2x8388608xf32>, tensor<2x3xi32>, tensor<2x8xi32>, tensor<2x8x4xf32>, tensor<2x2xf32>, tensor<2x4xi32> -> tensor<2xi32>
  return
}
