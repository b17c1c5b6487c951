// `tessera inspect --html`, `--trace` and `--tensorboard`: the report of an
// artifact or a run.
#pragma once
#include "runtime/artifact/ArtifactReader.h"
#include <string>

namespace tessera {

/// Files to write, and what to read besides; empty: none.
struct ReportFiles {
  std::string html, trace;
  std::string tensorboard; ///< a directory; of a run
  std::string ir;          ///< a directory of dumps
  std::string bench;       ///< of tessera bench kernels --json
  std::string cluster;     ///< a cluster file
  bool any() const {
    return !html.empty() || !trace.empty() || !tensorboard.empty();
  }
};

/// Of `device`, a kind of the artifact.
Status writeReport(const ArtifactReader &reader, const std::string &device,
                   const ReportFiles &files);
/// Prints how long a training step takes on the cluster of `files`, by the
/// program itself: GPUs at best by the roofline, a calibrated machine's ranks
/// with the rates that were measured.
Status printStepTime(const ArtifactReader &reader, const std::string &device,
                     const ReportFiles &files);
/// Of a run directory.
Status writeRunReport(const std::string &run, const ReportFiles &files);

/// Replaces the file.
Status writeText(const std::string &path, const std::string &text);

} // namespace tessera
