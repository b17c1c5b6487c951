// What nearly every unit test of the runtime includes.
#pragma once
#include "cmake/ArtifactPch.h"

#include <gtest/gtest.h>
