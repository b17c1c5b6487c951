#include "passes/folding/Ports.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::folding;

static std::vector<Port> portsOf(ArrayRef<Type> types, ArrayAttr attrs,
                                 StringAttr layer) {
  std::vector<Port> ports(types.size());
  for (auto [i, port] : llvm::enumerate(ports)) {
    port.type = types[i];
    if (!attrs)
      continue;
    port.attrs = cast<DictionaryAttr>(attrs[i]);
    port.layer = port.attrs.getAs<graph::LayerAttr>(layer);
  }
  return ports;
}

Ports::Ports(func::FuncOp function) {
  auto layer = StringAttr::get(function.getContext(), graph::kLayerAttr);
  arguments =
      portsOf(function.getArgumentTypes(), function.getArgAttrsAttr(), layer);
  results =
      portsOf(function.getResultTypes(), function.getResAttrsAttr(), layer);
}
