// All that a generated kernel includes.
#pragma once
#include "runtime/device/Launch.cuh"
#include "runtime/device/Math.cuh"
#include "runtime/device/Mma.cuh"
#include "runtime/device/Strip.cuh"
