// What the .sass files here were made from, by nvcc 13.0 and nvdisasm 13.5:
//   nvcc -arch=sm_90a -cubin kernels.cu -o kernels.cubin
//   nvdisasm -c -hex kernels.cubin | sed 's/  *$//; s/  *\/\* 0x/ \/* 0x/' >sm_90a.sass

// Sixteen times four loads of 16 bytes.
extern "C" __global__ void tessera_sum(const float4 *x, float *y) {
  float sum = 0;
#pragma unroll 4
  for (int i = 0; i < 64; ++i) {
    float4 v = x[i * 128 + threadIdx.x];
    sum += v.x + v.y + v.z + v.w;
  }
  y[threadIdx.x] = sum;
}

// A hundred loads, each of the address that the one before read.
extern "C" __global__ void tessera_chase(const long long *next, long long *y) {
  long long at = 0;
#pragma unroll 1
  for (int i = 0; i < 100; ++i)
    at = next[at];
  *y = at;
}

// As many iterations as memory says.
extern "C" __global__ void tessera_count(const int *x, int *y) {
  int i = 0;
#pragma unroll 1
  while (x[i])
    ++i;
  *y = i;
}

// Three stages by cp.async, of which two are in flight.
extern "C" __global__ void tessera_copies(const float4 *x, float *y) {
  __shared__ float4 stages[3][128];
  auto copy = [&](int i) {
    unsigned to = __cvta_generic_to_shared(&stages[i % 3][threadIdx.x]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to),
                 "l"(x + i * 128 + threadIdx.x));
    asm volatile("cp.async.commit_group;");
  };
  copy(0);
  copy(1);
  float sum = 0;
#pragma unroll 1
  for (int i = 0; i < 62; ++i) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    copy(i + 2);
    sum += stages[i % 3][127 - threadIdx.x].x;
  }
  y[threadIdx.x] = sum;
}

// An address that may be in shared memory.
__device__ int *volatile where;
extern "C" __global__ void tessera_generic(int which) {
  __shared__ int here;
  int *to = which ? &here : where;
  *to = 1;
  *where = here;
}
