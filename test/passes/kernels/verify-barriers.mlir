// RUN: tessera-opt %s --verify-tiled --split-input-file --verify-diagnostics
// Kernels of a GPU in which a barrier is missing.

module {
module @cuda attributes {tile.target = "cuda:sm_80"} {
  tile.kernel @k(%block: index) attributes {access = [], skeleton = #tile<skeleton row>, summary = ""} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %x = arith.constant dense<0.0> : vector<64xf32>
    %m = tile.alloc : memref<64xf32, #tile.shared>
    tile.store %x, %m[%c0] along [0] : vector<64xf32>, memref<64xf32, #tile.shared>
    // expected-error @+1 {{reads memory that other threads may have written since the last barrier; insert tile.barrier}}
    %a = tile.load %m[%c0] along [0] : memref<64xf32, #tile.shared>, vector<64xf32>
    tile.return
  }
}
}

// -----

module {
module @cuda attributes {tile.target = "cuda:sm_80"} {
  tile.kernel @k(%block: index) attributes {access = [], skeleton = #tile<skeleton row>, summary = ""} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %x = arith.constant dense<0.0> : vector<64xf32>
    %m = tile.alloc : memref<64xf32, #tile.shared>
    scf.for %i = %c0 to %block step %c1 {
      // expected-error @+1 {{reads memory that other threads may have written since the last barrier; insert tile.barrier}}
      %a = tile.load %m[%c0] along [0] : memref<64xf32, #tile.shared>, vector<64xf32>
      tile.store %x, %m[%c0] along [0] : vector<64xf32>, memref<64xf32, #tile.shared>
    }
    tile.return
  }
}
}

// -----

module {
module @cuda attributes {tile.target = "cuda:sm_80"} {
  tile.kernel @k(%block: index) attributes {access = [], skeleton = #tile<skeleton row>, summary = ""} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %x = arith.constant dense<0.0> : vector<64xf32>
    %m = tile.alloc : memref<64xf32, #tile.shared>
    scf.for %i = %c0 to %block step %c1 {
      // expected-error @+1 {{writes memory that other threads may have read since the last barrier; insert tile.barrier}}
      tile.store %x, %m[%c0] along [0] : vector<64xf32>, memref<64xf32, #tile.shared>
      tile.barrier
      %a = tile.load %m[%c0] along [0] : memref<64xf32, #tile.shared>, vector<64xf32>
    }
    tile.return
  }
}
}

// -----

module {
module @cuda attributes {tile.target = "cuda:sm_80"} {
  tile.kernel @k(%block: index) attributes {access = [], skeleton = #tile<skeleton row>, summary = ""} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %x = arith.constant dense<0.0> : vector<64xf32>
    %m = tile.alloc : memref<64xf32, #tile.shared>
    %if = arith.cmpi eq, %block, %c0 : index
    tile.store %x, %m[%c0] along [0] : vector<64xf32>, memref<64xf32, #tile.shared>
    scf.if %if {
      tile.barrier
    }
    // expected-error @+1 {{reads memory that other threads may have written since the last barrier; insert tile.barrier}}
    %a = tile.load %m[%c0] along [0] : memref<64xf32, #tile.shared>, vector<64xf32>
    tile.return
  }
}
}

// -----

module {
module @cuda attributes {tile.target = "cuda:sm_80"} {
  tile.kernel @k(%block: index) attributes {access = [], skeleton = #tile<skeleton row>, summary = ""} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %x = arith.constant dense<0.0> : vector<64xf32>
    %m = tile.alloc : memref<64xf32, #tile.shared>
    %a = memref.load %m[%c0] : memref<64xf32, #tile.shared>
    // expected-error @+1 {{writes memory that other threads may have read since the last barrier; insert tile.barrier}}
    memref.store %a, %m[%c0] : memref<64xf32, #tile.shared>
    tile.return
  }
}
}
