// Tool calls whose arguments are written one by one between tags, as XML, and a
// reader of them.
#pragma once
#include "runtime/serve/Api.h"
#include "runtime/serve/ToolCalls.h"

#include <memory>
#include <optional>
#include <span>

namespace tessera::serve {

/// Reads one output, in pieces of any size. A call is returned whole, when its
/// closing tag is there. Text that begins like a call and is not one is
/// content.
class TaggedCallReader final : public CallReader {
public:
  /// The format, which has tags of arguments, must outlive it. The types of
  /// arguments are those of the tools' schemas. A call of any other function is
  /// content. `onlyOne`: ignores everything after the first call.
  TaggedCallReader(const ToolFormat &format, std::span<const Tool> tools,
                   bool onlyOne);
  ToolPieces push(std::string_view text) override;
  ToolPieces finish() override;
  std::size_t calls() const override { return count; }

private:
  bool takeContent(ToolPieces &out);
  bool takeBlock(ToolPieces &out);
  bool readBlock(std::string_view block, ToolPieces &out);
  /// Skips the call in `text`; nothing if there is none.
  std::optional<CallPiece> readCall(std::string_view &text) const;

  const ToolFormat &format;
  const ArgumentTags &tags;
  std::vector<Tool> tools;
  bool onlyOne = false, inBlock = false;
  std::string held; ///< white space and a possible prefix of a tag, or a block
  std::size_t searched = 0; ///< bytes of the block before any closing tag
  std::size_t count = 0;
};

/// The reader of a format. The tools must be those of the request.
std::unique_ptr<CallReader> makeCallReader(const ToolFormat &format,
                                           std::span<const Tool> tools,
                                           bool onlyOne);

} // namespace tessera::serve
