// RUN: tessera-opt %s --insert-barriers --verify-tiled | FileCheck %s

module @cuda attributes {tile.target = "cuda:sm_80"} {
  // A read after a write; none is needed before the second read.
  // CHECK-LABEL: tile.kernel @after_writes
  // CHECK:         tile.store
  // CHECK-NEXT:    tile.barrier
  // CHECK-NEXT:    tile.load
  // CHECK-NEXT:    tile.load
  tile.kernel @after_writes(%block: index) attributes {access = [], skeleton = #tile<skeleton row>, summary = ""} {
    %c0 = arith.constant 0 : index
    %x = arith.constant dense<0.0> : vector<64xf32>
    %m = tile.alloc : memref<64xf32, #tile.shared>
    tile.store %x, %m[%c0] along [0] : vector<64xf32>, memref<64xf32, #tile.shared>
    %a = tile.load %m[%c0] along [0] : memref<64xf32, #tile.shared>, vector<64xf32>
    %b = tile.load %m[%c0] along [0] : memref<64xf32, #tile.shared>, vector<64xf32>
    tile.return
  }

  // Iterations of a loop that writes and reads; a branch that may not be taken.
  // CHECK-LABEL: tile.kernel @iterations
  // CHECK:         scf.for
  // CHECK-NEXT:      tile.barrier
  // CHECK-NEXT:      scf.if
  // CHECK-NEXT:        tile.store
  // CHECK-NEXT:      }
  // CHECK-NEXT:      tile.barrier
  // CHECK-NEXT:      tile.load
  tile.kernel @iterations(%block: index, %n: memref<1xi1>) attributes {access = [#tile<access read>], skeleton = #tile<skeleton row>, summary = ""} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %x = arith.constant dense<0.0> : vector<64xf32>
    %if = memref.load %n[%c0] : memref<1xi1>
    %m = tile.alloc : memref<64xf32, #tile.shared>
    scf.for %i = %c0 to %block step %c1 {
      scf.if %if {
        tile.store %x, %m[%c0] along [0] : vector<64xf32>, memref<64xf32, #tile.shared>
      }
      %a = tile.load %m[%c0] along [0] : memref<64xf32, #tile.shared>, vector<64xf32>
    }
    tile.return
  }

  // One thread writes an element that all have read.
  // CHECK-LABEL: tile.kernel @element
  // CHECK:         memref.load
  // CHECK-NEXT:    tile.barrier
  // CHECK-NEXT:    memref.store
  tile.kernel @element(%block: index) attributes {access = [], skeleton = #tile<skeleton row>, summary = ""} {
    %c0 = arith.constant 0 : index
    %m = tile.alloc : memref<64xf32, #tile.shared>
    %a = memref.load %m[%c0] : memref<64xf32, #tile.shared>
    memref.store %a, %m[%c0] : memref<64xf32, #tile.shared>
    tile.return
  }

  // All threads have read an element; the branch with a barrier may not be
  // taken, the loop have no iterations.
  // CHECK-LABEL: tile.kernel @skipped_barriers
  // CHECK:         scf.if
  // CHECK:         }
  // CHECK-NEXT:    tile.barrier
  // CHECK-NEXT:    memref.store
  // CHECK:         memref.load
  // CHECK:         scf.for
  // CHECK:         }
  // CHECK-NEXT:    tile.barrier
  // CHECK-NEXT:    memref.store
  tile.kernel @skipped_barriers(%block: index, %n: memref<1xi1>) attributes {access = [#tile<access read>], skeleton = #tile<skeleton row>, summary = ""} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %x = arith.constant dense<0.0> : vector<64xf32>
    %y = arith.constant 0.0 : f32
    %if = memref.load %n[%c0] : memref<1xi1>
    %m = tile.alloc : memref<1xf32, #tile.shared>
    %s = tile.alloc : memref<64xf32, #tile.shared>
    %a = memref.load %m[%c0] : memref<1xf32, #tile.shared>
    scf.if %if {
      tile.store %x, %s[%c0] along [0] : vector<64xf32>, memref<64xf32, #tile.shared>
      %b = tile.load %s[%c0] along [0] : memref<64xf32, #tile.shared>, vector<64xf32>
    }
    memref.store %y, %m[%c0] : memref<1xf32, #tile.shared>
    %c = memref.load %m[%c0] : memref<1xf32, #tile.shared>
    scf.for %i = %c0 to %block step %c1 {
      tile.store %x, %s[%c0] along [0] : vector<64xf32>, memref<64xf32, #tile.shared>
      %b = tile.load %s[%c0] along [0] : memref<64xf32, #tile.shared>, vector<64xf32>
    }
    memref.store %y, %m[%c0] : memref<1xf32, #tile.shared>
    tile.return
  }
}

// A block of a CPU is one thread.
// CHECK-LABEL: module @cpu
// CHECK-NOT:   tile.barrier
module @cpu attributes {tile.target = "cpu:avx2"} {
  tile.kernel @one(%block: index) attributes {access = [], skeleton = #tile<skeleton row>, summary = ""} {
    %c0 = arith.constant 0 : index
    %m = tile.alloc : memref<64xf32, #tile.shared>
    %a = memref.load %m[%c0] : memref<64xf32, #tile.shared>
    memref.store %a, %m[%c0] : memref<64xf32, #tile.shared>
    tile.return
  }
}
