// What nearly every source includes that reads an artifact.
#pragma once
#include "cmake/RuntimePch.h"
#include "runtime/artifact/Artifact_generated.h"
