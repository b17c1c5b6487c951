// RUN: tessera-opt %s --insert-barriers --verify-tiled | FileCheck %s

module @cuda attributes {tile.target = "cuda:sm_80"} {
  // A result that a launch may put in the place of an operand that several
  // threads have read: an element, or a slice of tiles of two dimensions.
  // CHECK-LABEL: tile.kernel @element_in_place
  // CHECK:         memref.load
  // CHECK-NEXT:    tile.barrier
  // CHECK-NEXT:    memref.store
  tile.kernel @element_in_place(%block: index, %x: memref<1xf32>, %y: memref<1xf32>) attributes {access = [#tile<access read>, #tile<access write>], skeleton = #tile<skeleton row>, summary = ""} {
    %c0 = arith.constant 0 : index
    %a = memref.load %x[%c0] : memref<1xf32>
    memref.store %a, %y[%c0] : memref<1xf32>
    tile.return
  }

  // CHECK-LABEL: tile.kernel @slice_in_place
  // CHECK:         tile.load
  // CHECK-NEXT:    tile.load
  // CHECK-NEXT:    tile.barrier
  // CHECK-NEXT:    tile.store
  tile.kernel @slice_in_place(%block: index, %x: memref<64xf32>, %y: memref<64xf32>, %z: memref<64xf32>) attributes {access = [#tile<access read>, #tile<access read>, #tile<access write>], skeleton = #tile<skeleton contraction>, summary = "", warps = array<i64: 1, 4>} {
    %c0 = arith.constant 0 : index
    %a = tile.load %x[%c0] along [0] : memref<64xf32>, vector<64xf32>
    %b = tile.load %y[%c0] along [0] : memref<64xf32>, vector<64xf32>
    tile.store %a, %z[%c0] along [0] : vector<64xf32>, memref<64xf32>
    tile.return
  }

  // No launch does that.
  // CHECK-LABEL: tile.kernel @slice_elsewhere
  // CHECK-NOT:     tile.barrier
  tile.kernel @slice_elsewhere(%block: index, %x: memref<64xf32>, %y: memref<64xf32>) attributes {access = [#tile<access read>, #tile<access write>], skeleton = #tile<skeleton contraction>, summary = "", warps = array<i64: 1, 4>} {
    %c0 = arith.constant 0 : index
    %a = tile.load %x[%c0] along [0] : memref<64xf32>, vector<64xf32>
    tile.store %a, %y[%c0] along [0] : vector<64xf32>, memref<64xf32>
    tile.return
  }
}

func.func @main(%a: tensor<1xf32>, %b: tensor<64xf32>, %c: tensor<64xf32>) -> (tensor<1xf32>, tensor<64xf32>, tensor<64xf32>) {
  %0 = tile.launch @element_in_place(%a) blocks [1] sizes [] reuse [0, 0] : (tensor<1xf32>) -> tensor<1xf32>
  %1 = tile.launch @slice_in_place(%b, %c) blocks [1] sizes [] reuse [1, 0] : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %2 = tile.launch @slice_elsewhere(%b) blocks [1] sizes [] : (tensor<64xf32>) -> tensor<64xf32>
  return %0, %1, %2 : tensor<1xf32>, tensor<64xf32>, tensor<64xf32>
}
