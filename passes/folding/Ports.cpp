#include "passes/folding/Ports.h"
#include "dialects/graph/GraphOps.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::folding;

static std::vector<Port> portsOf(ArrayRef<Type> types, ArrayAttr attrs,
                                 StringAttr state) {
  std::vector<Port> ports(types.size());
  for (auto [i, port] : llvm::enumerate(ports)) {
    port.type = types[i];
    if (!attrs)
      continue;
    port.attrs = cast<DictionaryAttr>(attrs[i]);
    if (auto name = port.attrs.getAs<StringAttr>(state))
      port.name = LayerName::parse(name.getValue());
  }
  return ports;
}

Ports::Ports(func::FuncOp function) {
  auto state = StringAttr::get(function.getContext(), graph::kStateAttr);
  arguments =
      portsOf(function.getArgumentTypes(), function.getArgAttrsAttr(), state);
  results =
      portsOf(function.getResultTypes(), function.getResAttrsAttr(), state);
}
