// What kernels for sm_90a include beside Device.cuh.
#pragma once
#include "runtime/device/BoxTile.cuh"
#include "runtime/device/WarpgroupMultiply.cuh"
