// What kernels for sm_90a include beside Device.cuh.
#pragma once
#include "runtime/device/Barrier.cuh"
#include "runtime/device/Tma.cuh"
#include "runtime/device/Wgmma.cuh"
