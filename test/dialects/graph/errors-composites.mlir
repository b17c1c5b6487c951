// RUN: tessera-opt %s --split-input-file --verify-diagnostics
// One case for each branch of the verifiers of composites.

func.func @f(%x: tensor<f32>) {
  // expected-error @+1 {{'graph.softmax' op expects an input of rank 1 or more}}
  %0 = graph.softmax %x : tensor<f32>
  return
}

// -----

func.func @f(%x: tensor<f32>, %w: tensor<4xf32>) {
  // expected-error @+1 {{'graph.rms_norm' op expects an input of rank 1 or more}}
  %0 = graph.rms_norm %x, %w eps 1.0e-5 : tensor<f32>, tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4xf32>, %w: tensor<4xf32>, %v: tensor<3xf32>, %b: tensor<4xbf16>) {
  // expected-error @+1 {{'graph.rms_norm' op expects a finite eps of at least 0}}
  %0 = graph.rms_norm %x, %w eps -1.0 : tensor<2x4xf32>, tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4xf32>, %w: tensor<4xf32>, %v: tensor<3xf32>, %b: tensor<4xbf16>) {
  // expected-error @+1 {{'graph.layer_norm' op expects a finite eps of at least 0}}
  %0 = graph.layer_norm %x, %w eps 0x7FF0000000000000 : tensor<2x4xf32>, tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4xf32>, %w: tensor<4xf32>, %v: tensor<3xf32>, %b: tensor<4xbf16>) {
  // expected-error @+1 {{'graph.layer_norm' op expects a weight of shape [4], got [3]}}
  %0 = graph.layer_norm %x, %v eps 0.0 : tensor<2x4xf32>, tensor<3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4xf32>, %w: tensor<4xf32>, %v: tensor<3xf32>, %b: tensor<4xbf16>) {
  // expected-error @+1 {{'graph.layer_norm' op expects a bias of shape [4], got [3]}}
  %0 = graph.layer_norm %x, %w, %v eps 0.0 : tensor<2x4xf32>, tensor<4xf32>, tensor<3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4xf32>, %w: tensor<4xf32>, %v: tensor<3xf32>, %b: tensor<4xbf16>) {
  // expected-error @+1 {{'graph.layer_norm' op expects one element type for weight and bias, got 'f32' and 'bf16'}}
  %0 = graph.layer_norm %x, %w, %b eps 0.0 : tensor<2x4xf32>, tensor<4xf32>, tensor<4xbf16>
  return
}

// -----

func.func @f(%x: tensor<2xf32>) {
  // expected-error @+1 {{'graph.rope' op expects an input of rank 4}}
  %0 = graph.rope %x {frequencies = array<f64: 1.0>} : tensor<2xf32>
  return
}

// -----

func.func @f(%x: tensor<1x2x1x4xf32>, %y: tensor<1x2x1x3xf32>) {
  // expected-error @+1 {{'graph.rope' op expects an even head_dim, got 3}}
  %0 = graph.rope %y {frequencies = array<f64: 1.0>} : tensor<1x2x1x3xf32>
  return
}

// -----

func.func @f(%x: tensor<1x2x1x4xf32>, %y: tensor<1x2x1x3xf32>) {
  // expected-error @+1 {{'graph.rope' op expects 2 frequencies for head_dim 4, got 1}}
  %0 = graph.rope %x {frequencies = array<f64: 1.0>} : tensor<1x2x1x4xf32>
  return
}

// -----

func.func @f(%x: tensor<1x2x1x4xf32>, %y: tensor<1x2x1x3xf32>) {
  // expected-error @+1 {{'graph.rope' op expects finite frequencies}}
  %0 = graph.rope %x {frequencies = array<f64: 1.0, 0x7FF0000000000000>} : tensor<1x2x1x4xf32>
  return
}

// -----

func.func @f(%x: tensor<1x2x1x4xf32>, %y: tensor<1x2x1x3xf32>) {
  // expected-error @+1 {{'graph.rope' op expects a finite scaling}}
  %0 = graph.rope %x {frequencies = array<f64: 1.0, 1.0>, scaling = 0x7FF0000000000000 : f64} : tensor<1x2x1x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2xf32>, %s: tensor<i64>) {
  // expected-error @+1 {{'graph.dropout' op expects a rate in [0, 1), got 1.0}}
  %0 = graph.dropout %x rate 1.0 stream 0 seed %s step %s : tensor<2xf32>, tensor<i64>, tensor<i64>
  return
}

// -----

func.func @f(%x: tensor<2xf32>, %s: tensor<i64>) {
  // expected-error @+1 {{'graph.dropout' op expects a stream in [0, 2^32), got 4294967296}}
  %0 = graph.dropout %x rate 0.5 stream 4294967296 seed %s step %s : tensor<2xf32>, tensor<i64>, tensor<i64>
  return
}

// -----

func.func @f(%q: tensor<1x4x4x8xf32>, %k: tensor<1x4x2x8xf32>, %odd: tensor<1x4x3x8xf32>, %b: tensor<1x4x2x8xbf16>, %r: tensor<8xf32>, %e: tensor<1x4x0x8xf32>, %short: tensor<1x3x2x8xf32>) {
  // expected-error @+1 {{'graph.attention' op expects a query of rank 4}}
  %0:2 = graph.attention %r, %k, %k scale 0.5 : tensor<8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32> -> tensor<1x4x4x8xf32>, tensor<1x4x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x4x8xf32>, %k: tensor<1x4x2x8xf32>, %odd: tensor<1x4x3x8xf32>, %b: tensor<1x4x2x8xbf16>, %r: tensor<8xf32>, %e: tensor<1x4x0x8xf32>, %short: tensor<1x3x2x8xf32>) {
  // expected-error @+1 {{'graph.attention' op expects a key of rank 4}}
  %0:2 = graph.attention %q, %r, %k scale 0.5 : tensor<1x4x4x8xf32>, tensor<8xf32>, tensor<1x4x2x8xf32> -> tensor<1x4x4x8xf32>, tensor<1x4x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x4x8xf32>, %k: tensor<1x4x2x8xf32>, %odd: tensor<1x4x3x8xf32>, %b: tensor<1x4x2x8xbf16>, %r: tensor<8xf32>, %e: tensor<1x4x0x8xf32>, %short: tensor<1x3x2x8xf32>) {
  // expected-error @+1 {{'graph.attention' op expects a key of shape [1, 4, 2, 8], got [1, 3, 2, 8]}}
  %0:2 = graph.attention %q, %short, %short scale 0.5 : tensor<1x4x4x8xf32>, tensor<1x3x2x8xf32>, tensor<1x3x2x8xf32> -> tensor<1x4x4x8xf32>, tensor<1x4x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x4x8xf32>, %k: tensor<1x4x2x8xf32>, %odd: tensor<1x4x3x8xf32>, %b: tensor<1x4x2x8xbf16>, %r: tensor<8xf32>, %e: tensor<1x4x0x8xf32>, %short: tensor<1x3x2x8xf32>) {
  // expected-error @+1 {{'graph.attention' op expects a value of shape [1, 4, 2, 8], got [1, 4, 3, 8]}}
  %0:2 = graph.attention %q, %k, %odd scale 0.5 : tensor<1x4x4x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x3x8xf32> -> tensor<1x4x4x8xf32>, tensor<1x4x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x4x8xf32>, %k: tensor<1x4x2x8xf32>, %odd: tensor<1x4x3x8xf32>, %b: tensor<1x4x2x8xbf16>, %r: tensor<8xf32>, %e: tensor<1x4x0x8xf32>, %short: tensor<1x3x2x8xf32>) {
  // expected-error @+1 {{'graph.attention' op expects heads to be a multiple of kv_heads, got 4 and 3}}
  %0:2 = graph.attention %q, %odd, %odd scale 0.5 : tensor<1x4x4x8xf32>, tensor<1x4x3x8xf32>, tensor<1x4x3x8xf32> -> tensor<1x4x4x8xf32>, tensor<1x4x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x4x8xf32>, %k: tensor<1x4x2x8xf32>, %odd: tensor<1x4x3x8xf32>, %b: tensor<1x4x2x8xbf16>, %r: tensor<8xf32>, %e: tensor<1x4x0x8xf32>, %short: tensor<1x3x2x8xf32>) {
  // expected-error @+1 {{'graph.attention' op expects heads to be a multiple of kv_heads, got 4 and 0}}
  %0:2 = graph.attention %q, %e, %e scale 0.5 : tensor<1x4x4x8xf32>, tensor<1x4x0x8xf32>, tensor<1x4x0x8xf32> -> tensor<1x4x4x8xf32>, tensor<1x4x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x4x8xf32>, %k: tensor<1x4x2x8xf32>, %odd: tensor<1x4x3x8xf32>, %b: tensor<1x4x2x8xbf16>, %r: tensor<8xf32>, %e: tensor<1x4x0x8xf32>, %short: tensor<1x3x2x8xf32>) {
  // expected-error @+1 {{'graph.attention' op expects one element type for query and key, got 'f32' and 'bf16'}}
  %0:2 = graph.attention %q, %b, %k scale 0.5 : tensor<1x4x4x8xf32>, tensor<1x4x2x8xbf16>, tensor<1x4x2x8xf32> -> tensor<1x4x4x8xf32>, tensor<1x4x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x4x8xf32>, %k: tensor<1x4x2x8xf32>, %odd: tensor<1x4x3x8xf32>, %b: tensor<1x4x2x8xbf16>, %r: tensor<8xf32>, %e: tensor<1x4x0x8xf32>, %short: tensor<1x3x2x8xf32>) {
  // expected-error @+1 {{'graph.attention' op expects one element type for query and value, got 'f32' and 'bf16'}}
  %0:2 = graph.attention %q, %k, %b scale 0.5 : tensor<1x4x4x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x2x8xbf16> -> tensor<1x4x4x8xf32>, tensor<1x4x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x4x8xf32>, %k: tensor<1x4x2x8xf32>, %odd: tensor<1x4x3x8xf32>, %b: tensor<1x4x2x8xbf16>, %r: tensor<8xf32>, %e: tensor<1x4x0x8xf32>, %short: tensor<1x3x2x8xf32>) {
  // expected-error @+1 {{'graph.attention' op expects a window of at least 1, got 0}}
  %0:2 = graph.attention %q, %k, %k scale 0.5 {window = 0 : i64} : tensor<1x4x4x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32> -> tensor<1x4x4x8xf32>, tensor<1x4x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x4x8xf32>, %k: tensor<1x4x2x8xf32>, %odd: tensor<1x4x3x8xf32>, %b: tensor<1x4x2x8xbf16>, %r: tensor<8xf32>, %e: tensor<1x4x0x8xf32>, %short: tensor<1x3x2x8xf32>) {
  // expected-error @+1 {{'graph.attention' op expects a finite scale}}
  %0:2 = graph.attention %q, %k, %k scale 0x7FF0000000000000 : tensor<1x4x4x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32> -> tensor<1x4x4x8xf32>, tensor<1x4x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x4x8xf32>, %k: tensor<1x4x2x8xf32>, %sinks: tensor<2xf32>) {
  // expected-error @+1 {{'graph.attention' op expects sinks of shape [4], got [2]}}
  %0:2 = graph.attention %q, %k, %k sinks %sinks : tensor<2xf32> scale 0.5 : tensor<1x4x4x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32> -> tensor<1x4x4x8xf32>, tensor<1x4x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x4x8xf32>, %k: tensor<1x4x2x8xf32>, %sinks: tensor<4xf32>) {
  // expected-error @+1 {{'graph.attention' op expects a scale above 0 with sinks}}
  %0:2 = graph.attention %q, %k, %k sinks %sinks : tensor<4xf32> scale -0.5 : tensor<1x4x4x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32> -> tensor<1x4x4x8xf32>, tensor<1x4x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x4x8xf32>, %k: tensor<1x4x2x8xf32>, %first: tensor<1x3xi32>) {
  // expected-error @+1 {{'graph.attention' op expects first of shape [1, 4], got [1, 3]}}
  %0:2 = graph.attention %q, %k, %k first %first : tensor<1x3xi32> scale 0.5 : tensor<1x4x4x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32> -> tensor<1x4x4x8xf32>, tensor<1x4x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x4x8xf32>, %k: tensor<1x4x2x8xf32>, %last: tensor<1x4xi32>) {
  // expected-error @+1 {{'graph.attention' op expects 'causal' and 'first' with 'last'}}
  %0:2 = graph.attention %q, %k, %k last %last : tensor<1x4xi32> scale 0.5 {causal} : tensor<1x4x4x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32> -> tensor<1x4x4x8xf32>, tensor<1x4x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x4x8xf32>, %k: tensor<1x4x2x8xf32>, %odd: tensor<1x4x3x8xf32>, %b: tensor<1x4x2x8xbf16>, %r: tensor<8xf32>, %e: tensor<1x4x0x8xf32>, %short: tensor<1x3x2x8xf32>) {
  // expected-error @+1 {{'graph.attention' op has result type 'tensor<4x4xf32>', expected 'tensor<1x4x4xf32>'}}
  %0:2 = graph.attention %q, %k, %k scale 0.5 : tensor<1x4x4x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32> -> tensor<1x4x4x8xf32>, tensor<4x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x4x8xf32>, %k: tensor<1x4x2x8xf32>, %odd: tensor<1x4x3x8xf32>, %b: tensor<1x4x2x8xbf16>, %r: tensor<8xf32>, %e: tensor<1x4x0x8xf32>, %short: tensor<1x3x2x8xf32>) {
  // expected-error @+1 {{'graph.attention' op expects one element type for query and result, got 'f32' and 'bf16'}}
  %0:2 = graph.attention %q, %k, %k scale 0.5 : tensor<1x4x4x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32> -> tensor<1x4x4x8xbf16>, tensor<1x4x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x4x8xf32>, %k: tensor<1x4x2x8xf32>, %lse: tensor<1x4x4xf32>, %b: tensor<1x4x4x8xbf16>) {
  // expected-error @+1 {{'graph.attention_grad' op expects an output of the query's type}}
  %0:3 = graph.attention_grad %q, %k, %k, %b, %lse, %q scale 0.5 : tensor<1x4x4x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x4x8xbf16>, tensor<1x4x4xf32>, tensor<1x4x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x4x8xf32>, %k: tensor<1x4x2x8xf32>, %lse: tensor<4x4xf32>) {
  // expected-error @+1 {{'graph.attention_grad' op expects an lse of shape [1, 4, 4], got [4, 4]}}
  %0:3 = graph.attention_grad %q, %k, %k, %q, %lse, %q scale 0.5 : tensor<1x4x4x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x4x8xf32>, tensor<4x4xf32>, tensor<1x4x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x4x8xf32>, %k: tensor<1x4x2x8xf32>, %lse: tensor<1x4x4xf32>, %b: tensor<1x4x4x8xbf16>) {
  // expected-error @+1 {{'graph.attention_grad' op expects a cotangent of the query's type}}
  %0:3 = graph.attention_grad %q, %k, %k, %q, %lse, %b scale 0.5 : tensor<1x4x4x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x4x8xf32>, tensor<1x4x4xf32>, tensor<1x4x4x8xbf16>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %w: tensor<10x8xf32>, %t: tensor<4xi32>, %v: tensor<8xf32>, %n: tensor<10x7xf32>, %u: tensor<5xi32>, %b: tensor<10x8xbf16>, %e: tensor<0x8xf32>, %one: tensor<f32>) {
  // expected-error @+1 {{'graph.linear_cross_entropy' op expects an input of rank 2}}
  %0 = graph.linear_cross_entropy %v, %w, %t : tensor<8xf32>, tensor<10x8xf32>, tensor<4xi32> -> tensor<f32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %w: tensor<10x8xf32>, %t: tensor<4xi32>, %v: tensor<8xf32>, %n: tensor<10x7xf32>, %u: tensor<5xi32>, %b: tensor<10x8xbf16>, %e: tensor<0x8xf32>, %one: tensor<f32>) {
  // expected-error @+1 {{'graph.linear_cross_entropy' op expects a weight of rank 2}}
  %0 = graph.linear_cross_entropy %x, %v, %t : tensor<4x8xf32>, tensor<8xf32>, tensor<4xi32> -> tensor<f32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %w: tensor<10x8xf32>, %t: tensor<4xi32>, %v: tensor<8xf32>, %n: tensor<10x7xf32>, %u: tensor<5xi32>, %b: tensor<10x8xbf16>, %e: tensor<0x8xf32>, %one: tensor<f32>) {
  // expected-error @+1 {{'graph.linear_cross_entropy' op expects a weight of shape [10, 8], got [10, 7]}}
  %0 = graph.linear_cross_entropy %x, %n, %t : tensor<4x8xf32>, tensor<10x7xf32>, tensor<4xi32> -> tensor<f32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %w: tensor<10x8xf32>, %t: tensor<4xi32>, %v: tensor<8xf32>, %n: tensor<10x7xf32>, %u: tensor<5xi32>, %b: tensor<10x8xbf16>, %e: tensor<0x8xf32>, %one: tensor<f32>) {
  // expected-error @+1 {{'graph.linear_cross_entropy' op expects targets of shape [4], got [5]}}
  %0 = graph.linear_cross_entropy %x, %w, %u : tensor<4x8xf32>, tensor<10x8xf32>, tensor<5xi32> -> tensor<f32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %w: tensor<10x8xf32>, %t: tensor<4xi32>, %v: tensor<8xf32>, %n: tensor<10x7xf32>, %u: tensor<5xi32>, %b: tensor<10x8xbf16>, %e: tensor<0x8xf32>, %one: tensor<f32>) {
  // expected-error @+1 {{'graph.linear_cross_entropy' op expects a vocabulary of at least 1}}
  %0 = graph.linear_cross_entropy %x, %e, %t : tensor<4x8xf32>, tensor<0x8xf32>, tensor<4xi32> -> tensor<f32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %w: tensor<10x8xf32>, %t: tensor<4xi32>, %v: tensor<8xf32>, %n: tensor<10x7xf32>, %u: tensor<5xi32>, %b: tensor<10x8xbf16>, %e: tensor<0x8xf32>, %one: tensor<f32>) {
  // expected-error @+1 {{'graph.linear_cross_entropy' op expects one element type for input and weight, got 'f32' and 'bf16'}}
  %0 = graph.linear_cross_entropy %x, %b, %t : tensor<4x8xf32>, tensor<10x8xbf16>, tensor<4xi32> -> tensor<f32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %w: tensor<10x8xf32>, %t: tensor<4xi32>, %v: tensor<8xf32>, %n: tensor<10x7xf32>, %u: tensor<5xi32>, %b: tensor<10x8xbf16>, %e: tensor<0x8xf32>, %one: tensor<f32>) {
  // expected-error @+1 {{'graph.linear_cross_entropy_grad' op expects a weight of shape [10, 8], got [10, 7]}}
  %0:3 = graph.linear_cross_entropy_grad %x, %n, %t, %one : (tensor<4x8xf32>, tensor<10x7xf32>, tensor<4xi32>, tensor<f32>) -> (tensor<f32>, tensor<4x8xf32>, tensor<10x7xf32>)
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %w: tensor<10x8xf32>, %t: tensor<4xi32>, %v: tensor<8xf32>, %n: tensor<10x7xf32>, %u: tensor<5xi32>, %b: tensor<10x8xbf16>, %e: tensor<0x8xf32>, %one: tensor<f32>) {
  // expected-error @+1 {{'graph.linear_cross_entropy_grad' op expects one element type for input and dInput, got 'f32' and 'bf16'}}
  %0:3 = graph.linear_cross_entropy_grad %x, %w, %t, %one : (tensor<4x8xf32>, tensor<10x8xf32>, tensor<4xi32>, tensor<f32>) -> (tensor<f32>, tensor<4x8xbf16>, tensor<10x8xf32>)
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %w: tensor<10x8xf32>, %t: tensor<4xi32>, %v: tensor<8xf32>, %n: tensor<10x7xf32>, %u: tensor<5xi32>, %b: tensor<10x8xbf16>, %e: tensor<0x8xf32>, %one: tensor<f32>) {
  // expected-error @+1 {{'graph.linear_cross_entropy_grad' op has result type 'tensor<8x10xf32>', expected 'tensor<10x8xf32>'}}
  %0:3 = graph.linear_cross_entropy_grad %x, %w, %t, %one : (tensor<4x8xf32>, tensor<10x8xf32>, tensor<4xi32>, tensor<f32>) -> (tensor<f32>, tensor<4x8xf32>, tensor<8x10xf32>)
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %w: tensor<10x8xf32>, %t: tensor<4xi32>, %v: tensor<8xf32>, %n: tensor<10x7xf32>, %u: tensor<5xi32>, %b: tensor<10x8xbf16>, %e: tensor<0x8xf32>, %one: tensor<f32>) {
  // expected-error @+1 {{'graph.linear_cross_entropy_grad' op expects dWeight in the element type of the weight or a wider one, got 'bf16' for 'f32'}}
  %0:3 = graph.linear_cross_entropy_grad %x, %w, %t, %one : (tensor<4x8xf32>, tensor<10x8xf32>, tensor<4xi32>, tensor<f32>) -> (tensor<f32>, tensor<4x8xf32>, tensor<10x8xbf16>)
  return
}

// -----

func.func @f(%x: tensor<1x2x1x4xf32>, %p: tensor<2xi32>) {
  // expected-error @+1 {{'graph.rope' op expects positions of shape [1, 2], got [2]}}
  %0 = graph.rope %x at %p {frequencies = array<f64: 1.0, 1.0>} : tensor<1x2x1x4xf32>, tensor<2xi32>
  return
}

// -----

func.func @f(%q: tensor<2x1x3x8xf32>, %k: tensor<5x16x2x8xf32>, %t: tensor<2x3xi32>, %l: tensor<2xi32>) {
  // expected-error @+1 {{'graph.paged_attention' op expects heads to be a multiple of kv_heads, got 3 and 2}}
  %0 = graph.paged_attention %q, %k, %k pages %t starts %l lengths %l scale 0.5 : tensor<2x1x3x8xf32>, tensor<5x16x2x8xf32>, tensor<2x3xi32>, tensor<2xi32>
  return
}

// -----

func.func @f(%q: tensor<2x1x4x8xf32>, %k: tensor<5x16x2x8xf32>, %t: tensor<1x3xi32>, %l: tensor<2xi32>) {
  // expected-error @+1 {{'graph.paged_attention' op expects a page table of shape [2, 3], got [1, 3]}}
  %0 = graph.paged_attention %q, %k, %k pages %t starts %l lengths %l scale 0.5 : tensor<2x1x4x8xf32>, tensor<5x16x2x8xf32>, tensor<1x3xi32>, tensor<2xi32>
  return
}

// -----

func.func @f(%q: tensor<2x1x4x8xf32>, %k: tensor<5x16x2x8xf32>, %t: tensor<2x3xi32>, %l: tensor<3xi32>) {
  // expected-error @+1 {{'graph.paged_attention' op expects starts of shape [2], got [3]}}
  %0 = graph.paged_attention %q, %k, %k pages %t starts %l lengths %l scale 0.5 : tensor<2x1x4x8xf32>, tensor<5x16x2x8xf32>, tensor<2x3xi32>, tensor<3xi32>
  return
}

// -----

func.func @f(%q: tensor<2x1x4x8xf32>, %k: tensor<5x16x2x8xf32>, %t: tensor<2x3xi32>, %l: tensor<2xi32>) {
  // expected-error @+1 {{'graph.paged_attention' op expects a window of at least 1, got 0}}
  %0 = graph.paged_attention %q, %k, %k pages %t starts %l lengths %l scale 0.5 {window = 0 : i64} : tensor<2x1x4x8xf32>, tensor<5x16x2x8xf32>, tensor<2x3xi32>, tensor<2xi32>
  return
}

// -----

func.func @f(%b: tensor<8x4xf32>, %i: tensor<3xi32>, %u: tensor<3x5xf32>) {
  // expected-error @+1 {{'graph.scatter_rows' op expects updates of shape [3, 4], got [3, 5]}}
  %0 = graph.scatter_rows %u at %i into %b : tensor<3x5xf32>, tensor<3xi32>, tensor<8x4xf32>
  return
}

// -----

func.func @f(%b: tensor<8x4xbf16>, %i: tensor<3xi32>, %u: tensor<3x4xf32>) {
  // expected-error @+1 {{'graph.scatter_rows' op expects one element type for updates and base, got 'f32' and 'bf16'}}
  %0 = graph.scatter_rows %u at %i into %b : tensor<3x4xf32>, tensor<3xi32>, tensor<8x4xbf16>
  return
}

// -----

func.func @f(%q: tensor<1x4x4x8xf32>, %k: tensor<1x4x2x8xf32>) {
  // expected-error @+1 {{'graph.attention' op expects a cap above 0}}
  %0:2 = graph.attention %q, %k, %k scale 0.5 {cap = 0.0 : f64} : tensor<1x4x4x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32> -> tensor<1x4x4x8xf32>, tensor<1x4x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x4x8xf32>, %k: tensor<1x4x2x8xf32>) {
  // expected-error @+1 {{'graph.attention' op expects a scale above 0 where scores have a cap}}
  %0:2 = graph.attention %q, %k, %k scale -0.5 {cap = 2.0 : f64} : tensor<1x4x4x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32> -> tensor<1x4x4x8xf32>, tensor<1x4x4xf32>
  return
}

// -----

func.func @f(%x: tensor<6x4xf32>, %w: tensor<7x4xf32>, %t: tensor<5x3xi32>) {
  // expected-error @+1 {{'graph.linear_cross_entropy' op expects targets of shape [6, 3], got [5, 3]}}
  %0 = graph.linear_cross_entropy %x, %w, %t : tensor<6x4xf32>, tensor<7x4xf32>, tensor<5x3xi32> -> tensor<f32>
  return
}

// -----

func.func @f(%x: tensor<6x4xf32>, %w: tensor<7x4xf32>, %t: tensor<6x3xi32>) {
  // expected-error @+1 {{'graph.linear_cross_entropy' op expects losses of shape [6, 3], got [6]}}
  %0 = graph.linear_cross_entropy %x, %w, %t : tensor<6x4xf32>, tensor<7x4xf32>, tensor<6x3xi32> -> tensor<6xf32>
  return
}

// -----

func.func @f(%x: tensor<6x4xf32>, %w: tensor<7x4xf32>, %t: tensor<6xi32>) {
  // expected-error @+1 {{'graph.linear_cross_entropy' op expects a cap above 0}}
  %0 = graph.linear_cross_entropy %x, %w, %t {cap = -1.0 : f64} : tensor<6x4xf32>, tensor<7x4xf32>, tensor<6xi32> -> tensor<f32>
  return
}

// -----

func.func @f(%x: tensor<6x4xf32>, %w: tensor<4xf32>) {
  // expected-error @+1 {{'graph.rms_norm' op expects a finite offset}}
  %0 = graph.rms_norm %x, %w eps 1.0e-5 {offset = 0x7FF0000000000000 : f64} : tensor<6x4xf32>, tensor<4xf32>
  return
}
