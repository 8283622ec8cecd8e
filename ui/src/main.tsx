import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { App } from "./App";
import { followTheme, takeAddress } from "./host";
import "uplot/dist/uPlot.min.css";
import "./style/base.css";
import "./style/parts.css";
import "./style/flow.css";
import "./style/narrow.css";

followTheme();
takeAddress();
createRoot(document.getElementById("root") as HTMLElement).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
