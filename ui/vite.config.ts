import { readFileSync } from "node:fs";

import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

/** The notices of what is in the bundle, as its licences ask for them. */
function notices(): Plugin {
  return {
    name: "notices",
    generateBundle(_, bundle) {
      const modules = Object.values(bundle).flatMap((chunk) => (chunk.type === "chunk" ? Object.keys(chunk.modules) : []));
      const styles = [...this.getModuleIds()].filter((id) => id.endsWith(".css"));
      const folders = [...modules, ...styles].map((id) => /^\0?(.*\/node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(id)?.[1]).filter((each) => each !== undefined);
      const texts = [...new Set(folders)].sort().map((folder) => {
        const { name, version } = JSON.parse(readFileSync(`${folder}/package.json`, "utf-8")) as { name: string; version: string };
        return `${name} ${version}\n\n${readFileSync(`${folder}/LICENSE`, "utf-8").trim()}\n`;
      });
      this.emitFile({ type: "asset", fileName: "notices.txt", source: texts.join(`\n${"-".repeat(80)}\n\n`) });
    },
  };
}

// The names have no hash: the bundle is committed, and a build of the same sources must give the same files.
export default defineConfig({
  base: "./",
  plugins: [react(), notices()],
  build: {
    outDir: "../airflow_cdc/plugins/ui",
    emptyOutDir: true,
    sourcemap: false,
    chunkSizeWarningLimit: 600,
    rollupOptions: {
      output: {
        entryFileNames: "page.js",
        chunkFileNames: "[name].js",
        assetFileNames: "page[extname]",
      },
    },
  },
});
