// What kernels for sm_90a include beside Device.cuh.
#pragma once
#include "runtime/device/Pipeline.cuh"
