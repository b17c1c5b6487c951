// What kernels for sm_90a include in addition to Device.cuh.
#pragma once
#include "runtime/device/Pipeline.cuh"
