// All that a generated kernel includes.
#pragma once
#include "runtime/device/Launch.cuh"
#include "runtime/device/Micropanel.cuh"
#include "runtime/device/MultiplyQuantized.cuh"
