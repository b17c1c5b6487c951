// All that a generated kernel includes.
#pragma once
#include "runtime/device/Launch.cuh"
#include "runtime/device/Multiply.cuh"
#include "runtime/device/Strip.cuh"
